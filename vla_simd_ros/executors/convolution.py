"""Which algorithm computes a convolution."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vla_simd_ros.graph.ir import Op

CONVOLUTIONS = ("direct", "winograd2", "winograd4", "auto", "auto4")
"""Settings. Winograd's method on tiles of 2x2 or 4x4 output pixels multiplies less and rounds more; "auto"
takes the faster of "direct" and "winograd2" for each layer, "auto4" the fastest of all three. They compute
3x3 convolutions with stride 1; every other one is direct."""

DEFAULT_CONVOLUTION = "winograd2"
"""About twice as fast as "direct", and the actions depart from float64 no further than with it. "winograd4"
is faster still and departs further; "auto" may choose otherwise in the next process."""

_SIDES = {"direct": (0,), "winograd2": (2,), "winograd4": (4,), "auto": (0, 2), "auto4": (0, 2, 4)}
# More rounding must pay: it has to save this much of the time.
_LEAST_GAIN = 0.05

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConvolutionShape:
    """What the speed of a 3x3 convolution depends on."""

    height: int
    width: int
    channels: int
    filters: int
    padding: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}x{self.channels}-{self.filters}p{self.padding}"


_LAYER = re.compile(r"(\d+)x(\d+)x(\d+)-(\d+)p(\d+)=(\w+)")


def parse_layers(text: str) -> dict[ConvolutionShape, int]:
    """The side of the tiles by shape, from "120x160x64-64p1=winograd4, ..." (height x width x channels -
    filters p padding). Raises ValueError for anything else."""
    layers = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _LAYER.fullmatch(part)
        algorithms = {name: sides[0] for name, sides in _SIDES.items() if len(sides) == 1}
        if not found or found[6] not in algorithms:
            expected = f"HxWxC-FpP=ALGORITHM with one of {', '.join(algorithms)}"
            raise ValueError(f"convolution_layers: '{part}' is no layer, expected {expected}")
        layers[ConvolutionShape(*map(int, found.groups()[:5]))] = algorithms[found[6]]
    return layers


def format_layers(sides: Mapping[ConvolutionShape, int]) -> str:
    """What :func:`parse_layers` reads."""
    names = {sides[0]: name for name, sides in _SIDES.items() if len(sides) == 1}
    return ", ".join(f"{shape}={names[side]}" for shape, side in sides.items())


class ConvolutionChoice:
    """Chooses for each layer, by its shape; a shape is timed once, when it first occurs.

    ``time_ms`` tells the time of a shape with a side of the tiles (see :meth:`side`); ``known`` shapes
    are not timed but have the side given. Raises ValueError for a
    ``setting`` that is none of :data:`CONVOLUTIONS`.
    """

    def __init__(
        self,
        setting: str,
        time_ms: Callable[[ConvolutionShape, int], float],
        known: Mapping[ConvolutionShape, int] | None = None,
    ) -> None:
        if setting not in _SIDES:
            raise ValueError(f"convolution='{setting}': expected one of {', '.join(CONVOLUTIONS)}")
        self._time_ms = time_ms
        self._sides = _SIDES[setting]
        self._chosen: dict[ConvolutionShape, int] = {**(known or {})}

    @property
    def chosen(self) -> Mapping[ConvolutionShape, int]:
        """The side by shape, for those asked for so far and those known from the start."""
        return self._chosen

    def side(self, op: Op) -> int:
        """The side of the tiles for Winograd's method; 0 for a direct convolution."""
        shape = _winograd_shape(op)
        if shape is None:
            return 0
        if shape not in self._chosen:
            self._chosen[shape] = self._sides[0] if len(self._sides) == 1 else self._fastest(shape)
        return self._chosen[shape]

    def _fastest(self, shape: ConvolutionShape) -> int:
        times = {side: self._time_ms(shape, side) for side in self._sides}
        best = 0
        for side in self._sides[1:]:
            if times[side] < times[best] * (1 - _LEAST_GAIN):
                best = side
        measured = ", ".join(f"{algorithm(side)} {ms:.3f} ms" for side, ms in times.items())
        _LOGGER.info("convolution %s: %s of %s", shape, algorithm(best), measured)
        return best


def algorithm(side: int) -> str:
    """What kernels are called: "conv2d", or "winograd2" and "winograd4" after the side of their tiles."""
    return f"winograd{side}" if side else "conv2d"


def _winograd_shape(op: Op) -> ConvolutionShape | None:
    """The shape of a convolution that Winograd's method can compute, None for any other."""
    if op.kind != "conv2d":
        return None
    x, weight = list(op.operands())[:2]
    filters, *kernel, channels = weight.shape
    if (*kernel, op.attrs["stride"], op.attrs["dilation"]) != (3, 3, 1, 1):
        return None
    height, width = x.shape[:2]
    return ConvolutionShape(height, width, channels, filters, op.attrs["padding"])
