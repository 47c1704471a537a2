"""Which algorithm computes a convolution."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

from vla_simd_ros.executors.convolution_cost import cheapest
from vla_simd_ros.executors.convolution_forms import (
    DIRECT,
    FIXED_CONVOLUTIONS,
    FLAT,
    ConvolutionShape,
    Form,
    winograd_forms,
)
from vla_simd_ros.graph.ir import Op
from vla_simd_ros.graph.window import Window

CONVOLUTIONS = ("auto", "exact", *FIXED_CONVOLUTIONS, "measured")
"""Settings. "direct" multiplies patches of the image where they are, "flat" stores them all first. Winograd's
method on tiles of 2x2 or 4x4 output pixels multiplies less, and on 4x4 rounds more. "auto" takes what a rule
fitted to measurements holds for the fastest at each layer, "exact" the same among algorithms that round no
more than "direct", "measured" what is the fastest when it is loaded. A layer that has no form of Winograd's
method is computed directly, or, by the three of these that choose, flat where it has few output pixels."""

DEFAULT_CONVOLUTION = "auto"
"""The same choice in every process, so the actions are the same to the last bit."""

EXACT_CONVOLUTIONS = ("exact", "direct", "flat", "winograd2")
"""Those that keep the actions as close to float64 as "direct"."""

# What a measurement must show to depart from the rule: so much less time, and in all but one of the turns.
_LEAST_GAIN = 0.05

# The algorithms that a setting may choose among, where it is none of them itself.
_ALLOWED = {"auto": FIXED_CONVOLUTIONS, "exact": EXACT_CONVOLUTIONS[1:], "measured": FIXED_CONVOLUTIONS}

# Output pixels up to which reading the filters takes the time, in a layer without Winograd's method.
_FEW_PIXELS = 64

# With fewer channels transforms take longer than the products that they save, and with fewer tiles so does
# reading the filters, which are four times as many values. Half of a tile's pixels should be in the image.
_LEAST_INT8_CHANNELS, _LEAST_INT8_TILES, _LEAST_INT8_PIXELS = 16, 4, 8

_LOGGER = logging.getLogger(__name__)


class ConvolutionChoice:
    """Chooses for each layer, by its shape; a shape is timed once, when it first occurs.

    ``tile`` are the rows and columns of the register tile, by which the rule of "auto" and "exact" knows an
    instruction set; ``times_ms`` tells the times of a shape in several forms, turn by turn, of some in fewer;
    ``known`` shapes have the form given, unless it rounds more than the setting "exact" allows. Raises
    ValueError for a ``setting`` that is none of :data:`CONVOLUTIONS`.
    """

    def __init__(
        self,
        setting: str,
        tile: tuple[int, int],
        times_ms: Callable[[ConvolutionShape, Sequence[Form]], Mapping[Form, Sequence[float]]],
        known: Mapping[ConvolutionShape, Form] | None = None,
    ) -> None:
        if setting not in CONVOLUTIONS:
            raise ValueError(f"convolution='{setting}': expected one of {', '.join(CONVOLUTIONS)}")
        self._setting = setting
        self._tile = tile
        self._times_ms = times_ms
        self._chosen: dict[ConvolutionShape, Form] = {
            shape: form
            for shape, form in (known or {}).items()
            if setting != "exact" or form.algorithm in EXACT_CONVOLUTIONS
        }

    @property
    def chosen(self) -> Mapping[ConvolutionShape, Form]:
        """The form by shape, for those asked for so far and those known from the start."""
        return self._chosen

    def form(self, op: Op) -> Form:
        """How to compute this convolution."""
        shape = convolution_shape(op)
        if shape is None:
            flat = has_patches(op) if self._setting == "flat" else self._setting in _ALLOWED and _is_thin(op)
            return FLAT if flat else DIRECT
        if shape not in self._chosen:
            allowed = _ALLOWED.get(self._setting, (self._setting,))
            forms = [form for form in shape.forms if form.algorithm in allowed]
            self._chosen[shape] = self._choose(shape, forms or [DIRECT])
        return self._chosen[shape]

    def _choose(self, shape: ConvolutionShape, forms: Sequence[Form]) -> Form:
        if len(forms) == 1:
            return forms[0]
        expected = cheapest(shape, forms, self._tile)
        if self._setting != "measured":
            return expected
        times = self._times_ms(shape, forms)
        best = _clearly_fastest(times, expected)
        measured = ", ".join(f"{form.algorithm} {min(turns):.3f} ms" for form, turns in times.items())
        _LOGGER.info("convolution %s: %s of %s", shape, best.algorithm, measured)
        return best


def _clearly_fastest(times: Mapping[Form, Sequence[float]], expected: Form) -> Form:
    """The form of the shortest time, if it is faster than the ``expected`` one beyond doubt."""
    fastest = min(times, key=lambda form: min(times[form]))
    won = [new < old for new, old in zip(times[fastest], times[expected], strict=False)]
    clearly = min(times[fastest]) <= min(times[expected]) * (1 - _LEAST_GAIN)
    return fastest if clearly and sum(won) >= len(won) - 1 else expected


def convolution_shape(op: Op) -> ConvolutionShape | None:
    """The shape of a convolution that Winograd's method can compute, None for any other operation."""
    if op.kind != "conv2d" or op.attrs["dilation"] != 1 or op.attrs.get("precision") == "int8":
        return None
    x, weight = list(op.operands())[:2]
    filters, height, width, channels = weight.shape
    walk = Window.of(op.attrs).square
    if walk is None or height != width or not winograd_forms(height, walk[0]):
        return None
    stride, padding = walk
    return ConvolutionShape(x.shape[0], x.shape[1], channels, filters, height, stride, padding)


def int8_by_winograd(op: Op, setting: str, available: bool) -> bool:
    """Whether the INT8 convolution ``op`` is computed by Winograd's method on tiles of 4x4, which rounds
    nothing there, so that it is only a matter of time; ``available`` tells whether the kernels have it."""
    if op.kind != "conv2d" or not available or setting in ("direct", "flat"):
        return False
    _, height, width, channels = list(op.operands())[1].shape
    walk = Window.of(op.attrs).square
    unit = walk is not None and walk[0] == 1 and op.attrs["dilation"] == 1
    if (height, width) != (3, 3) or not unit or channels < _LEAST_INT8_CHANNELS:
        return False
    down, across = op.output.shape[:2]
    tiles = Form(4).tiles(down, across)
    return tiles >= _LEAST_INT8_TILES and down * across >= _LEAST_INT8_PIXELS * tiles


def has_patches(op: Op) -> bool:
    """Whether the patches of a convolution are anything else than its image as it is."""
    if op.kind != "conv2d" or op.attrs.get("precision") == "int8":
        return False
    weight = list(op.operands())[1]
    return weight.shape[1:3] != (1, 1) or Window.of(op.attrs).square != (1, 0)


def _is_thin(op: Op) -> bool:
    """Whether the filters of a convolution take longer to read than to multiply; what reads those of a linear
    layer is the fastest then."""
    if op.kind != "conv2d" or op.attrs.get("precision") == "int8":
        return False
    return math.prod(op.output.shape[:2]) <= _FEW_PIXELS


def winograd_form(op: Op, side: int) -> Form:
    """The form of Winograd's method with tiles of this side that computes ``op``."""
    walk = Window.of(op.attrs).square
    assert walk is not None
    kernel = list(op.operands())[1].shape[1]
    return next(form for form in winograd_forms(kernel, walk[0]) if form.side == side)
