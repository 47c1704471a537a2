"""A U-Net over time whose every block is modulated by one vector of conditions.

A sequence of T rows is an image [1, T, channels], so that a convolution along it is one of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.weights import Weights

_NORM_EPS = 1e-5
_SAME, _HALVED = 1, 2
# Of the last norm, whatever those of the blocks have.
FINAL_GROUPS = 8


@dataclass(frozen=True)
class UNetConfig:
    """``widths`` are the channels at each resolution, each half the one before; ``scales`` tells whether
    conditions scale features besides shifting them."""

    widths: Sequence[int]
    kernel: int
    groups: int
    scales: bool


class UNet:
    """The network from noisy rows [T, A] and conditions [1, D] to a prediction [T, A]."""

    def __init__(self, config: UNetConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    def build(self, b: Builder, rows: Tensor, conditions: Tensor) -> Tensor:
        """``conditions`` come activated, as every block would activate them."""
        length, outputs = rows.shape
        with b.block("unet.down.0.0"):
            x = b.reshape(rows, (1, length, outputs), name="rows")
        x, skipped = self._down(b, x, conditions)
        for index in range(2):
            x = self._block(b, x, conditions, f"mid_modules.{index}", x.shape[2], f"unet.mid.{index}")
        x = self._up(b, x, conditions, skipped)
        with b.block("unet.final"):
            x = self._normed(b, x, "final_conv.0", self._config.widths[0], "conv", FINAL_GROUPS)
            x = self._convolution(b, x, "final_conv.1", outputs, 1, name="prediction")
            return b.reshape(x, (length, outputs), name="prediction.rows")

    def _down(self, b: Builder, x: Tensor, conditions: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The coarsest features, and those of every resolution."""
        skipped = []
        for level, width in enumerate(self._config.widths):
            name, block = f"down_modules.{level}", f"unet.down.{level}"
            x = self._block(b, x, conditions, f"{name}.0", width, f"{block}.0")
            x = self._block(b, x, conditions, f"{name}.1", width, f"{block}.1")
            skipped.append(x)
            if level < len(self._config.widths) - 1:
                with b.block(f"{block}.halve"):
                    x = self._convolution(b, x, f"{name}.2", width, 3, _HALVED, name="halved")
        return x, skipped

    def _up(self, b: Builder, x: Tensor, conditions: Tensor, skipped: list[Tensor]) -> Tensor:
        """Features of the full resolution. The finest of all have no way back of their own."""
        for index, width in enumerate(reversed(self._config.widths[:-1])):
            name, block = f"up_modules.{index}", f"unet.up.{index}"
            with b.block(f"{block}.0"):
                x = b.concat([x, skipped[-1 - index]], axis=2, name="with_skipped")
            x = self._block(b, x, conditions, f"{name}.0", width, f"{block}.0")
            x = self._block(b, x, conditions, f"{name}.1", width, f"{block}.1")
            with b.block(f"{block}.double"):
                x = self._doubled(b, x, f"{name}.2")
        return x

    def _block(
        self, b: Builder, x: Tensor, conditions: Tensor, module: str, width: int, block: str
    ) -> Tensor:
        """Two convolutions, modulated in between, around which the input is added."""
        with b.block(block):
            y = self._normed(b, x, f"{module}.conv1", width, "conv1", self._config.groups)
            y = self._modulated(b, y, conditions, f"{module}.cond_encoder.1")
            y = self._normed(b, y, f"{module}.conv2", width, "conv2", self._config.groups)
            if x.shape[2] != width:
                x = self._convolution(b, x, f"{module}.residual_conv", width, 1, name="residual")
            return b.add(y, x, name="sum")

    def _modulated(self, b: Builder, x: Tensor, conditions: Tensor, module: str) -> Tensor:
        """scale * x + shift, or x + shift."""
        width, depth = x.shape[2], conditions.shape[1]
        if not self._config.scales:
            weight = self._weights.constant(b, f"{module}.weight", width, depth)
            bias = self._weights.constant(b, f"{module}.bias", width)
            return b.add(x, b.linear(conditions, weight, bias, name="shift"), name="shifted")
        weight = self._weights.constant(b, f"{module}.weight", 2 * width, depth)
        bias = b.constant(f"{module}.bias", self._gains(module, width))
        both = b.linear(conditions, weight, bias, name="modulation")
        gain = b.slice(both, axis=1, start=0, stop=width, name="gain")
        shift = b.slice(both, axis=1, start=width, stop=2 * width, name="shift")
        return b.film(x, gain, shift, name="modulated")

    def _gains(self, module: str, width: int) -> Array:
        """The bias of scales and shifts with 1 taken off the scales: a film adds it."""
        bias = self._weights.array(f"{module}.bias", (2 * width,))
        one = np.repeat(np.array([1, 0], np.float32), width)
        return self._weights.made(("gains", module), lambda: bias - one)

    def _normed(self, b: Builder, x: Tensor, module: str, width: int, name: str, groups: int) -> Tensor:
        y = self._convolution(b, x, f"{module}.block.0", width, self._config.kernel, name=name)
        weight, bias = (
            self._weights.constant(b, f"{module}.block.1.{part}", width) for part in ("weight", "bias")
        )
        y = b.group_norm(y, weight, bias, groups=groups, eps=_NORM_EPS, name=f"{name}.normed")
        return b.activation("mish", y, name=f"{name}.mish")

    def _convolution(
        self, b: Builder, x: Tensor, module: str, outputs: int, kernel: int, stride: int = _SAME, *, name: str
    ) -> Tensor:
        """A convolution along the rows that keeps their number up to its stride."""
        filters = self._weights.line_filters(b, f"{module}.weight", outputs, x.shape[2], kernel)
        side = kernel // 2
        y = b.conv2d(x, filters, stride=(1, stride), padding=((0, 0), (side, side)), name=f"{name}.product")
        return b.add(y, self._weights.constant(b, f"{module}.bias", outputs), name=name)

    def _doubled(self, b: Builder, x: Tensor, module: str) -> Tensor:
        """A transposed convolution of four taps and stride two: every even row, every odd row.

        An even row reads the taps 3 and 1 at the row before and at its own, an odd one the taps 2 and 0 at
        its own and the row after.
        """
        _, length, width = x.shape
        bias = self._weights.constant(b, f"{module}.bias", width)
        halves = []
        for name, taps, padding in (("even", (3, 1), (1, 0)), ("odd", (2, 0), (0, 1))):
            filters = self._weights.transposed_line_filters(b, f"{module}.weight", width, 4, taps)
            half = b.conv2d(x, filters, padding=((0, 0), padding), name=f"{name}.product")
            halves.append(b.add(half, bias, name=name))
        return b.reshape(b.concat(halves, axis=2, name="pairs"), (1, 2 * length, width), name="doubled")
