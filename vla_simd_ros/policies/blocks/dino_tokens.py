"""What goes into a DINO vision transformer: class token, registers and patches, and where the patches are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.dino_config import DinoConfig
from vla_simd_ros.policies.blocks.positions import resized_positions, rotary_positions_2d
from vla_simd_ros.policies.weights import Weights

_COLOURS = 3
_CLASS, _REGISTERS, _POSITIONS = (
    f"embeddings.{name}" for name in ("cls_token", "register_tokens", "position_embeddings")
)


class DinoTokens:
    """The tokens of square images of ``image_size`` pixels: ``before`` rows, then ``patches`` ones."""

    def __init__(self, config: DinoConfig, weights: Weights, image_size: int) -> None:
        self._config = config
        self._weights = weights
        self._side = image_size // config.patch
        self.patches = self._side**2
        self.before = 1 + config.registers

    @property
    def rows(self) -> int:
        """Tokens of one view."""
        return self.before + self.patches

    def embed(self, b: Builder, views: Sequence[Tensor]) -> Tensor:
        """The tokens of every normalized view [H, W, 3], one view after the other."""
        config = self._config
        before, positions = self._constants(b)
        filters = self._weights.filters(
            b, f"{config.names.patches}.weight", config.width, _COLOURS, config.patch
        )
        bias = self._weights.constant(b, f"{config.names.patches}.bias", config.width)
        parts = []
        for index, view in enumerate(views):
            y = b.conv2d(view, filters, stride=config.patch, name=f"filtered.{index}")
            y = b.add(y, bias, name=f"biased.{index}")
            y = b.reshape(y, (self.patches, config.width), name=f"patches.{index}")
            parts.append(before)
            parts.append(y if positions is None else b.add(y, positions, name=f"positioned.{index}"))
        return b.concat(parts, axis=0, name="tokens")

    def rotation(self, b: Builder, views: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines for the rows of all views; what stands before the patches is not turned."""
        assert self._config.rope_base is not None
        head_width = self._config.width // self._config.heads
        cos, sin = rotary_positions_2d(self._side, self._side, head_width, self._config.rope_base)
        return (
            self._rotation(b, "rotation.cos", cos, np.ones, views),
            self._rotation(b, "rotation.sin", sin, np.zeros, views),
        )

    def _rotation(
        self, b: Builder, name: str, table: Array, fill: Callable[..., Array], views: int
    ) -> Tensor:
        def make() -> Array:
            unturned = fill((self.before, table.shape[1]), np.float32)
            return np.tile(np.concatenate((unturned, table)), (views, 1))

        return b.constant(name, self._weights.made((name, views), make))

    def _constants(self, b: Builder) -> tuple[Tensor, Tensor | None]:
        """The tokens before the patches, and the learned positions of the patches, if they are learned."""
        tokens = [self._stored(b, _CLASS, 1)]
        if self._config.registers:
            tokens.append(self._stored(b, _REGISTERS, self._config.registers))
        before = b.concat(tokens, axis=0, name="before")
        if self._config.rope_base is not None:
            return before, None
        count = self._config.positions
        stored = self._stored(b, _POSITIONS, 1 + count)
        first = b.slice(stored, axis=0, start=0, stop=1, name="class_position")
        before = b.add(before, first, name="before.positioned")
        if count == self.patches:
            return before, b.slice(stored, axis=0, start=1, stop=1 + count, name="positions")
        return before, b.constant("positions", self._weights.made(("positions", self._side), self._resized))

    def _resized(self) -> Array:
        """The positions of the patches where they were learned for another size."""
        table = self._weights.array(_POSITIONS, (1, 1 + self._config.positions, self._config.width))
        return resized_positions(table[0, 1:], self._side, self._side)

    def _stored(self, b: Builder, name: str, rows: int) -> Tensor:
        """Stored tokens [1, rows, width] without their first axis."""
        stored = self._weights.constant(b, name, 1, rows, self._config.width)
        return b.reshape(stored, (rows, self._config.width), name=f"{name.rpartition('.')[2]}.rows")
