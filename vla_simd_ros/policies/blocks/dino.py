"""The vision transformers DINOv3 and DINOv2: norms before each sub-layer, a scale for each of their outputs.

All views go through the layers together, so that every weight is read once for all of them; only attention
keeps them apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.blocks.dino_config import DinoConfig
from vla_simd_ros.policies.blocks.dino_tokens import DinoTokens
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.weights import Weights


class Dino:
    """A vision transformer over square images; ``layer_prefix`` comes before the number of a stored layer."""

    def __init__(self, config: DinoConfig, weights: Weights, layer_prefix: str, image_size: int) -> None:
        self._config = config
        self._weights = weights
        self._layer_prefix = layer_prefix
        self._tokens = DinoTokens(config, weights, image_size)

    def patch_features(self, b: Builder, views: Sequence[Tensor], *, after_norm: bool) -> list[Tensor]:
        """The patches of each normalized view [H, W, 3] after the last layer, [n, width] in row-major order.

        They are those ``after_norm``, the final one, or those before it.
        """
        with b.block("vision.embed"):
            x = self._tokens.embed(b, views)
        layers = self._config.layers
        for index in range(layers):
            with b.block(f"vision.{index}"):
                x = self._layer(b, x, len(views), f"{self._layer_prefix}{index}")
        with b.block(f"vision.{layers - 1}"):
            return [self._patches(b, x, view, after_norm) for view in range(len(views))]

    def _patches(self, b: Builder, x: Tensor, view: int, after_norm: bool) -> Tensor:
        rows, before = self._tokens.rows, self._tokens.before
        first, last = view * rows + before, (view + 1) * rows
        patches = b.slice(x, axis=0, start=first, stop=last, name=f"patches.{view}")
        return (
            self._norm(b, patches, self._config.names.norm, f"final_norm.{view}") if after_norm else patches
        )

    def _layer(self, b: Builder, x: Tensor, views: int, prefix: str) -> Tensor:
        y = self._norm(b, x, f"{prefix}.norm1", "norm1")
        y = self._attention(b, y, views, prefix)
        x = b.add(x, y, name="self_attn.sum")
        y = self._norm(b, x, f"{prefix}.norm2", "norm2")
        y = self._feedforward(b, y, prefix)
        return b.add(x, y, name="linear2.sum")

    def _attention(self, b: Builder, x: Tensor, views: int, prefix: str) -> Tensor:
        names, heads = self._config.names, self._config.heads
        q, k, v = (
            self._linear(b, x, f"{prefix}.{module}", f"self_attn.{part}", part in self._config.biased)
            for part, module in (("q", names.q), ("k", names.k), ("v", names.v))
        )
        if self._config.rope_base is not None:
            cos, sin = self._tokens.rotation(b, views)
            q = b.rotary(q, cos, sin, heads=heads, name="self_attn.q.turned")
            k = b.rotary(k, cos, sin, heads=heads, name="self_attn.k.turned")
        parts = [self._attend(b, (q, k, v), view) for view in range(views)]
        y = b.concat(parts, axis=0, name="self_attn.attention")
        scale = self._weights.constant(b, f"{prefix}.layer_scale1.lambda1", self._config.width)
        return self._linear(
            b, y, f"{prefix}.{names.out}", "self_attn.out", "out" in self._config.biased, scale=scale
        )

    def _attend(self, b: Builder, qkv: tuple[Tensor, Tensor, Tensor], view: int) -> Tensor:
        """Attention within one view."""
        rows, heads = self._tokens.rows, self._config.heads
        q, k, v = (
            b.slice(t, axis=0, start=view * rows, stop=(view + 1) * rows, name=f"self_attn.{part}.{view}")
            for part, t in zip("qkv", qkv, strict=True)
        )
        scale = (self._config.width // heads) ** -0.5
        return b.attention(q, k, v, heads=heads, scale=scale, name=f"self_attn.attention.{view}")

    def _feedforward(self, b: Builder, x: Tensor, prefix: str) -> Tensor:
        names, inner, activation = self._config.names, self._config.feedforward, self._config.activation
        bias = self._config.feedforward_bias
        y = self._linear(b, x, f"{prefix}.{names.up}", "linear1", bias, inner)
        if self._config.gated:
            gate = self._linear(b, x, f"{prefix}.mlp.gate_proj", "gate", bias, inner)
            y = b.binary("mul", b.activation(activation, gate, name=activation), y, name="gated")
        else:
            y = b.activation(activation, y, name=activation)
        scale = self._weights.constant(b, f"{prefix}.layer_scale2.lambda1", self._config.width)
        return self._linear(b, y, f"{prefix}.{names.down}", "linear2", bias, scale=scale)

    def _linear(
        self,
        b: Builder,
        x: Tensor,
        module: str,
        name: str,
        bias: bool,
        outputs: int | None = None,
        scale: Tensor | None = None,
    ) -> Tensor:
        outputs = self._config.width if outputs is None else outputs
        return linear(b, x, self._weights, module, outputs, name=name, bias=bias, scale=scale)

    def _norm(self, b: Builder, x: Tensor, module: str, name: str) -> Tensor:
        return layer_norm(b, x, self._weights, module, eps=self._config.eps, name=name)
