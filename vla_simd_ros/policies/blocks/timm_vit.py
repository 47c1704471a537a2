"""Vision transformers as the timm library stores them: norms come before each sub-layer, queries, keys and
values are projected at once.

What is stored tells which one it is: DINOv2 has a class token, registers and a scale for what each sub-layer
gives, SigLIP has none of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.weights import TensorSource, Weights

_COLOURS = 3
_EPS = 1e-6
_MATRIX, _IMAGE = 2, 4
_CLASS, _REGISTERS, _POSITIONS = "cls_token", "reg_token", "pos_embed"
_SCALE = "blocks.0.ls1.scale_factor"


@dataclass(frozen=True)
class TimmVitConfig:
    """Sizes; ``side`` is how many patches an image has in each direction.

    ``class_token`` and ``registers`` rows come before the patches and have no positions. ``scaled``: what a
    sub-layer gives has a scale for each column.
    """

    width: int
    heads: int
    feedforward: int
    layers: int
    patch: int
    side: int
    class_token: bool
    registers: int
    scaled: bool

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return self.side**2


def read_timm_vit(source: TensorSource, prefix: str, names: frozenset[str], heads: int) -> TimmVitConfig:
    """The sizes of the tower whose tensors begin with ``prefix``, of all stored ``names``; only the number of
    ``heads`` does not show in them. Raises CheckpointError for one that this module does not know."""
    width, colours, patch, _ = _shape(source, f"{prefix}patch_embed.proj.weight", _IMAGE)
    positions = source.shape(f"{prefix}{_POSITIONS}")
    side = round(positions[1] ** 0.5) if len(positions) > 1 else 0
    if colours != _COLOURS or positions != (1, side**2, width):
        raise CheckpointError(
            f"tensor '{prefix}{_POSITIONS}' has shape {list(positions)}, expected [1, n * n, {width}]: "
            "a position for each patch of a square image, none for tokens before them"
        )
    if width % heads:
        raise CheckpointError(f"'{prefix}': width is {width}, expected a multiple of {heads} heads")
    layers = 0
    while f"{prefix}blocks.{layers}.norm1.weight" in names:
        layers += 1
    if layers < 2:
        raise CheckpointError(f"'{prefix}blocks.' has {layers} layers, expected 2 or more")
    registers = source.shape(prefix + _REGISTERS)[1] if prefix + _REGISTERS in names else 0
    return TimmVitConfig(
        width=width,
        heads=heads,
        feedforward=_shape(source, f"{prefix}blocks.0.mlp.fc1.weight", _MATRIX)[0],
        layers=layers,
        patch=patch,
        side=side,
        class_token=prefix + _CLASS in names,
        registers=registers,
        scaled=prefix + _SCALE in names,
    )


class TimmVit:
    """A tower with these sizes."""

    def __init__(self, config: TimmVitConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    def patch_features(self, b: Builder, image: Tensor, block: Callable[[str], str]) -> Tensor:
        """The patches of a normalized image [H, W, 3] after the last layer but one, [patches, width], without
        the final norm; ``block`` names blocks."""
        config = self._config
        with b.block(block("patches")):
            x = self._tokens(b, image)
        for index in range(config.layers - 1):
            with b.block(block(str(index))):
                x = self._layer(b, x, f"blocks.{index}")
        before = x.shape[0] - config.patches
        with b.block(block(str(config.layers - 2))):
            return b.slice(x, axis=0, start=before, stop=x.shape[0], name="features")

    def _tokens(self, b: Builder, image: Tensor) -> Tensor:
        config = self._config
        filters = self._weights.filters(b, "patch_embed.proj.weight", config.width, _COLOURS, config.patch)
        x = b.conv2d(image, filters, stride=config.patch, name="product")
        x = b.add(x, self._weights.constant(b, "patch_embed.proj.bias", config.width), name="biased")
        x = b.reshape(x, (config.patches, config.width), name="rows")
        x = b.add(x, self._stored(b, _POSITIONS, config.patches), name="positioned")
        before = [self._stored(b, _CLASS, 1)] if config.class_token else []
        if config.registers:
            before.append(self._stored(b, _REGISTERS, config.registers))
        return b.concat([*before, x], axis=0, name="tokens")

    def _layer(self, b: Builder, x: Tensor, prefix: str) -> Tensor:
        config = self._config
        y = layer_norm(b, x, self._weights, f"{prefix}.norm1", eps=_EPS, name="norm1")
        x = b.add(x, self._attention(b, y, prefix), name="self_attn.sum")
        y = layer_norm(b, x, self._weights, f"{prefix}.norm2", eps=_EPS, name="norm2")
        y = linear(b, y, self._weights, f"{prefix}.mlp.fc1", config.feedforward, name="linear1")
        y = b.activation("gelu", y, name="gelu")
        y = self._scaled(b, y, f"{prefix}.mlp.fc2", f"{prefix}.ls2", "linear2")
        return b.add(x, y, name="linear2.sum")

    def _attention(self, b: Builder, x: Tensor, prefix: str) -> Tensor:
        width, heads = self._config.width, self._config.heads
        together = linear(b, x, self._weights, f"{prefix}.attn.qkv", 3 * width, name="self_attn.qkv")
        q, k, v = (
            b.slice(together, axis=1, start=i * width, stop=(i + 1) * width, name=f"self_attn.{part}")
            for i, part in enumerate("qkv")
        )
        y = b.attention(q, k, v, heads=heads, scale=(width // heads) ** -0.5, name="self_attn.attention")
        return self._scaled(b, y, f"{prefix}.attn.proj", f"{prefix}.ls1", "self_attn.out")

    def _scaled(self, b: Builder, x: Tensor, module: str, scale: str, name: str) -> Tensor:
        width = self._config.width
        factor = self._weights.constant(b, f"{scale}.scale_factor", width) if self._config.scaled else None
        return linear(b, x, self._weights, module, width, name=name, scale=factor)

    def _stored(self, b: Builder, name: str, rows: int) -> Tensor:
        """Stored tokens [1, rows, width] without their first axis."""
        stored = self._weights.constant(b, name, 1, rows, self._config.width)
        return b.reshape(stored, (rows, self._config.width), name=f"{name}.rows")


def _shape(source: TensorSource, name: str, rank: int) -> tuple[int, ...]:
    shape = source.shape(name)
    if len(shape) != rank:
        raise CheckpointError(f"tensor '{name}' has shape {list(shape)}, expected {rank} dimensions")
    return shape
