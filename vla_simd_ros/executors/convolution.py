"""Which algorithm computes a convolution."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vla_simd_ros.graph.ir import Op
from vla_simd_ros.graph.window import Window

CONVOLUTIONS = ("auto", "exact", "direct", "flat", "winograd2", "winograd4", "measured")
"""Settings. "direct" multiplies patches of the image where they are, "flat" stores them all first. Winograd's
method on tiles of 2x2 or 4x4 output pixels multiplies less, and on 4x4 rounds more. "auto" takes what a fixed
rule holds for the fastest at each layer, "exact" the same among algorithms that round no more than "direct",
"measured" what is the fastest when it is loaded. A layer that has no form of Winograd's method is computed
directly, or, by the three of these that choose, flat where it has few output pixels."""

DEFAULT_CONVOLUTION = "auto"
"""The same choice in every process, so the actions are the same to the last bit."""

FIXED_CONVOLUTIONS = ("direct", "winograd2", "winograd4")
"""The algorithms that may be the fastest, without the settings that choose one."""

EXACT_CONVOLUTIONS = ("exact", "direct", "flat", "winograd2")
"""Those that keep the actions as close to float64 as "direct"."""

# More rounding must pay: it has to save this much of the time.
_LEAST_GAIN = 0.05

_LOGGER = logging.getLogger(__name__)


class Form(NamedTuple):
    """How a convolution is computed: with tiles of ``side`` by Winograd's method for square filters of side
    ``kernel`` with this stride; where ``side`` is 0, directly, or with ``flat`` as one matrix product of
    patches that are stored."""

    side: int = 0
    kernel: int = 3
    stride: int = 1
    flat: bool = False

    @property
    def name(self) -> str:
        """What kernels are called: "conv2d", "flat", or, after their tiles, "winograd2" and "winograd4"."""
        if self.flat:
            return "flat"
        return f"winograd{self.side}" if self.side else "conv2d"

    @property
    def packing(self) -> tuple[int, int, int]:
        """How the engine packs the filters: :attr:`side`, :attr:`kernel` and :attr:`stride`."""
        return self.side, self.kernel, self.stride

    @property
    def tile(self) -> tuple[int, int]:
        """Output pixels of a tile."""
        return self.side, 1 if self.kernel == _TALL_KERNEL else self.side

    @property
    def products(self) -> int:
        """Multiplications for a tile, an input channel and a filter; as many values has the filter."""
        return self.values * (self.kernel if self.kernel == _TALL_KERNEL else 1)

    @property
    def values(self) -> int:
        """What a tile is transformed into, for each channel."""
        if self.kernel == _TALL_KERNEL:
            return _TALL_VALUES
        return (self.side + 2 if self.stride == 1 else 2 * self.side + 1) ** 2

    def tiles(self, height: int, width: int) -> int:
        """Tiles that cover an output image."""
        tall, wide = self.tile
        return math.ceil(height / tall) * math.ceil(width / wide)


DIRECT = Form()
FLAT = Form(flat=True)

# 7x7 filters are transformed along their columns only.
_TALL_KERNEL, _TALL_VALUES = 7, 13
# By side of the filter and stride, those that round least first.
_FORMS = {
    (3, 1): (Form(2, 3, 1), Form(4, 3, 1)),
    (3, 2): (Form(2, 3, 2), Form(4, 3, 2)),
    (7, 2): (Form(4, 7, 2),),
}
# For each setting the sides of tiles that it may choose.
_SIDES = {
    "auto": (0, 2, 4),
    "exact": (0, 2),
    "direct": (0,),
    "flat": (0,),
    "winograd2": (2,),
    "winograd4": (4,),
    "measured": (0, 2, 4),
}

# Settings that leave the choice open, and the output pixels up to which reading the filters takes the time.
_FREE = ("auto", "exact", "measured")
_FEW_PIXELS = 64

# With fewer channels transforms take longer than the products that they save, and with fewer tiles so does
# reading the filters, which are four times as many values. Half of a tile's pixels should be in the image.
_LEAST_INT8_CHANNELS, _LEAST_INT8_TILES, _LEAST_INT8_PIXELS = 16, 4, 8

# The rule's idea of a machine: floating-point operations of products in the time that a byte of filters takes
# to come from memory, and that transforming a value of one channel takes.
_PER_BYTE, _PER_VALUE = 13, 20
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class ConvolutionShape:
    """What the speed of a convolution with square filters depends on."""

    height: int
    width: int
    channels: int
    filters: int
    kernel: int
    stride: int
    padding: int

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the result."""
        reach = 2 * self.padding - self.kernel
        return (self.height + reach) // self.stride + 1, (self.width + reach) // self.stride + 1

    def __str__(self) -> str:
        window = f"k{self.kernel}s{self.stride}p{self.padding}"
        return f"{self.height}x{self.width}x{self.channels}-{self.filters}{window}"


_LAYER = re.compile(r"(\d+)x(\d+)x(\d+)-(\d+)k(\d+)s(\d+)p(\d+)=(\w+)")


def parse_layers(text: str) -> dict[ConvolutionShape, Form]:
    """The form by shape, from "120x160x64-64k3s1p1=winograd4, ..." (height x width x channels - filters k
    side of the filter s stride p padding). Raises ValueError for anything else."""
    layers = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _LAYER.fullmatch(part)
        shape = ConvolutionShape(*map(int, found.groups()[:-1])) if found else None
        form = _form_called(found[8], shape) if found and shape else None
        if shape is None or form is None:
            expected = f"HxWxC-FkKsSpP=ALGORITHM with one of {', '.join(FIXED_CONVOLUTIONS)}"
            raise ValueError(f"convolution_layers: '{part}' is no layer, expected {expected}")
        layers[shape] = form
    return layers


def format_layers(forms: Mapping[ConvolutionShape, Form]) -> str:
    """What :func:`parse_layers` reads."""
    return ", ".join(f"{shape}={form.name if form.side else 'direct'}" for shape, form in forms.items())


def _form_called(algorithm: str, shape: ConvolutionShape) -> Form | None:
    """The form of ``shape`` with this one of :data:`FIXED_CONVOLUTIONS`, None where there is none."""
    if algorithm not in FIXED_CONVOLUTIONS:
        return None
    forms = (DIRECT, *_FORMS.get((shape.kernel, shape.stride), ()))
    return next((form for form in forms if form.side == _SIDES[algorithm][0]), None)


class ConvolutionChoice:
    """Chooses for each layer, by its shape; a shape is timed once, when it first occurs.

    ``time_ms`` tells the time of a shape in a form; ``known`` shapes have the form given, unless it rounds
    more than the setting "exact" allows. Raises ValueError for a ``setting`` that is none of
    :data:`CONVOLUTIONS`.
    """

    def __init__(
        self,
        setting: str,
        time_ms: Callable[[ConvolutionShape, Form], float],
        known: Mapping[ConvolutionShape, Form] | None = None,
    ) -> None:
        if setting not in _SIDES:
            raise ValueError(f"convolution='{setting}': expected one of {', '.join(CONVOLUTIONS)}")
        self._setting = setting
        self._time_ms = time_ms
        self._chosen: dict[ConvolutionShape, Form] = {
            shape: form
            for shape, form in (known or {}).items()
            if setting != "exact" or form.side in _SIDES["exact"]
        }

    @property
    def chosen(self) -> Mapping[ConvolutionShape, Form]:
        """The form by shape, for those asked for so far and those known from the start."""
        return self._chosen

    def form(self, op: Op) -> Form:
        """How to compute this convolution."""
        shape = convolution_shape(op)
        if self._setting == "flat" and shape not in self._chosen and has_patches(op):
            return FLAT
        if shape is None:
            return FLAT if self._setting in _FREE and _is_thin(op) else DIRECT
        if shape not in self._chosen:
            self._chosen[shape] = self._choose(shape, _allowed(shape, self._setting))
        return self._chosen[shape]

    def _choose(self, shape: ConvolutionShape, forms: tuple[Form, ...]) -> Form:
        if len(forms) == 1:
            return forms[0]
        if self._setting != "measured":
            return min(forms, key=lambda form: expected_cost(shape, form))
        times = {form: self._time_ms(shape, form) for form in forms}
        best = forms[0]
        for form in forms[1:]:
            if times[form] < times[best] * (1 - _LEAST_GAIN):
                best = form
        measured = ", ".join(f"{form.name} {ms:.3f} ms" for form, ms in times.items())
        _LOGGER.info("convolution %s: %s of %s", shape, best.name, measured)
        return best


def expected_cost(shape: ConvolutionShape, form: Form) -> float:
    """What the rule of "auto" compares: operations of products, or the time in which the filters arrive where
    that is longer, and those of the transforms."""
    pairs = shape.channels * shape.filters
    if form == DIRECT:
        taps = shape.kernel**2
        return pairs * taps * max(2 * math.prod(shape.out_size), _PER_BYTE * _FLOAT_BYTES)
    tiles = form.tiles(*shape.out_size)
    products = pairs * form.products * max(2 * tiles, _PER_BYTE * _FLOAT_BYTES)
    return products + _PER_VALUE * tiles * form.values * (shape.channels + shape.filters)


def convolution_shape(op: Op) -> ConvolutionShape | None:
    """The shape of a convolution that Winograd's method can compute, None for any other operation."""
    if op.kind != "conv2d" or op.attrs["dilation"] != 1 or op.attrs.get("precision") == "int8":
        return None
    x, weight = list(op.operands())[:2]
    filters, height, width, channels = weight.shape
    walk = Window.of(op.attrs).square
    if walk is None or height != width or (height, walk[0]) not in _FORMS:
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
    return next(form for form in _FORMS[kernel, walk[0]] if form.side == side)


def _allowed(shape: ConvolutionShape, setting: str) -> tuple[Form, ...]:
    sides = _SIDES[setting]
    forms: Iterable[Form] = _FORMS[shape.kernel, shape.stride]
    direct = (DIRECT,) if 0 in sides else ()
    return (*direct, *(form for form in forms if form.side in sides)) or (DIRECT,)
