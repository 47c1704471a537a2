"""The vision transformer EVA-02 as driving planners use it: attention within windows, every few layers across
the whole view, positions by rotation in two dimensions, and gated feed-forward layers.

All views go through the layers together, so that every weight is read once for all of them. Patches are in
the order of their windows from the beginning: a window is a stretch of rows, and a view is one of windows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.weights import Weights

_COLOURS = 3


@dataclass(frozen=True)
class EvaConfig:
    """Sizes.

    window: patches along a side of a window; those at the lower and the right border are smaller where the
        view is no multiple
    global_every: every so many layers the last one attends across the whole view
    base: of the wavelengths of rotary positions
    """

    width: int
    heads: int
    feedforward: int
    layers: int
    patch: int
    window: int
    global_every: int
    eps: float
    base: float

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    def is_global(self, layer: int) -> bool:
        """Whether a layer attends across the whole view."""
        return layer % self.global_every == self.global_every - 1


class Eva:
    """The tower over views of ``height`` by ``width`` pixels, multiples of a patch."""

    def __init__(self, config: EvaConfig, weights: Weights, height: int, width: int) -> None:
        self._config = config
        self._weights = weights
        self._rows, self._columns = height // config.patch, width // config.patch
        self._windows = windows(self._rows, self._columns, config.window)

    @property
    def patches(self) -> int:
        """Patches of a view."""
        return self._rows * self._columns

    def order(self) -> Array:
        """The number, in row-major order, of each patch as :meth:`build` returns them, int32 [patches]."""
        return self._weights.made(("order",), lambda: np.concatenate(self._windows))

    def build(self, b: Builder, views: Sequence[Tensor]) -> Tensor:
        """The patches of normalized views [H, W, 3], one view after the other, [views * patches, width]."""
        with b.block("vision.patches"):
            x = b.concat([self._patches(b, view, i) for i, view in enumerate(views)], axis=0, name="tokens")
        for index in range(self._config.layers):
            with b.block(f"vision.{index}"):
                x = self._layer(b, x, index, len(views))
        with b.block(f"vision.{self._config.layers - 1}"):
            return self._norm(b, x, "norm", "final_norm")

    def _patches(self, b: Builder, view: Tensor, index: int) -> Tensor:
        width, patch = self._config.width, self._config.patch
        filters = self._weights.filters(b, "patch_embed.weight", width, _COLOURS, patch)
        bias = self._weights.constant(b, "patch_embed.bias", width)
        order = b.constant("order", self.order())
        x = b.add(
            b.conv2d(view, filters, stride=patch, name=f"filtered.{index}"), bias, name=f"biased.{index}"
        )
        x = b.reshape(x, (self.patches, width), name=f"rows.{index}")
        x = b.embedding(x, order, name=f"ordered.{index}")
        stored = self._weights.constant(b, "pos_embed", self.patches, width)
        positions = b.embedding(stored, order, name=f"positions.{index}")
        return b.add(x, positions, name=f"positioned.{index}")

    def _layer(self, b: Builder, x: Tensor, index: int, views: int) -> Tensor:
        prefix = f"layers.{index}"
        y = self._norm(b, x, f"{prefix}.norm1", "norm1")
        y = self._attention(b, y, index, views)
        x = b.add(x, y, name="self_attn.sum")
        y = self._norm(b, x, f"{prefix}.norm2", "norm2")
        return b.add(x, self._feedforward(b, y, f"{prefix}.mlp"), name="linear2.sum")

    def _attention(self, b: Builder, x: Tensor, index: int, views: int) -> Tensor:
        config, module = self._config, f"layers.{index}.attn"
        q, k, v = (
            linear(
                b,
                x,
                self._weights,
                f"{module}.{part}_proj",
                config.width,
                name=f"self_attn.{part}",
                bias=bias,
            )
            for part, bias in (("q", True), ("k", False), ("v", True))
        )
        everywhere = config.is_global(index)
        cos, sin = self._rotation(b, everywhere, views)
        q = b.rotary(q, cos, sin, heads=config.heads, name="self_attn.q.turned")
        k = b.rotary(k, cos, sin, heads=config.heads, name="self_attn.k.turned")
        counts = [self.patches] if everywhere else [len(window) for window in self._windows]
        starts = np.cumsum([0, *counts * views])
        parts = [
            self._attend(b, (q, k, v), first, stop) for first, stop in itertools.pairwise(starts.tolist())
        ]
        y = b.concat(parts, axis=0, name="self_attn.attention")
        return linear(b, y, self._weights, f"{module}.proj", config.width, name="self_attn.out")

    def _attend(self, b: Builder, qkv: tuple[Tensor, Tensor, Tensor], first: int, stop: int) -> Tensor:
        """Attention among the rows from ``first`` to ``stop``."""
        q, k, v = (
            b.slice(t, axis=0, start=first, stop=stop, name=f"self_attn.{part}.{first}")
            for part, t in zip("qkv", qkv, strict=True)
        )
        config = self._config
        return b.attention(
            q, k, v, heads=config.heads, scale=config.head**-0.5, name=f"self_attn.attention.{first}"
        )

    def _feedforward(self, b: Builder, x: Tensor, module: str) -> Tensor:
        inner = self._config.feedforward
        gate = linear(b, x, self._weights, f"{module}.w1", inner, name="linear1.gate")
        up = linear(b, x, self._weights, f"{module}.w2", inner, name="linear1")
        y = b.binary("mul", b.activation("silu", gate, name="silu"), up, name="gated")
        y = self._norm(b, y, f"{module}.ffn_ln", "gated.norm")
        return linear(b, y, self._weights, f"{module}.w3", self._config.width, name="linear2")

    def _rotation(self, b: Builder, everywhere: bool, views: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines for the rows of all views."""
        return self._table(b, everywhere, views, "cos"), self._table(b, everywhere, views, "sin")

    def _table(self, b: Builder, everywhere: bool, views: int, name: str) -> Tensor:
        def make() -> Array:
            tables = rotations(self._coordinates(everywhere), self._config.head, self._config.base)
            return np.tile(tables[("cos", "sin").index(name)], (views, 1))

        place = "view" if everywhere else "window"
        return b.constant(f"rotation.{place}.{name}", self._weights.made((place, name, views), make))

    def _coordinates(self, everywhere: bool) -> Array:
        """Row and column of each patch, [patches, 2]: within its window, or within the view, whose longer
        side is as long as a window then, which is what rotations were learned for."""
        row, column = np.divmod(self.order(), self._columns)
        window = self._config.window
        if not everywhere:
            return np.stack((row % window, column % window), axis=1).astype(np.float64)
        scale = window / max(self._rows, self._columns)
        return np.stack((row, column), axis=1) * scale

    def _norm(self, b: Builder, x: Tensor, module: str, name: str) -> Tensor:
        return layer_norm(b, x, self._weights, module, eps=self._config.eps, name=name)


def windows(rows: int, columns: int, side: int) -> list[Array]:
    """The numbers in row-major order of the patches of each window, int32."""
    numbers = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    return [
        numbers[top : top + side, left : left + side].reshape(-1)
        for top in range(0, rows, side)
        for left in range(0, columns, side)
    ]


def rotations(coordinates: Array, head: int, base: float) -> tuple[Array, Array]:
    """Cosines and sines, float32 [n, head / 2], of the angles by which a patch's row (first half of the
    columns) and its column (second half) turn queries and keys; ``coordinates`` [n, 2]."""
    frequencies = base ** (-np.arange(0, head // 2, 2) / (head // 2))
    angles = (coordinates[:, :, None] * frequencies).reshape(len(coordinates), -1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
