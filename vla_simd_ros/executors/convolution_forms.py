"""The algorithms of convolutions, the shapes of layers that have a choice of them, and both as text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

FIXED_CONVOLUTIONS = ("direct", "flat", "winograd2", "winograd4")
"""The algorithms, as settings name them."""


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
    def algorithm(self) -> str:
        """The one of :data:`FIXED_CONVOLUTIONS`."""
        return self.name if self.side or self.flat else "direct"

    @property
    def packing(self) -> tuple[int, int, int]:
        """How the engine packs the filters: :attr:`side`, :attr:`kernel` and :attr:`stride`."""
        return self.side, self.kernel, self.stride

    @property
    def tile(self) -> tuple[int, int]:
        """Output pixels of a tile, down and across."""
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
_WINOGRAD: Mapping[tuple[int, int], tuple[Form, ...]] = {
    (3, 1): (Form(2, 3, 1), Form(4, 3, 1)),
    (3, 2): (Form(2, 3, 2), Form(4, 3, 2)),
    (7, 2): (Form(4, 7, 2),),
}


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

    @property
    def forms(self) -> tuple[Form, ...]:
        """All that can compute it, those that round least first."""
        return DIRECT, FLAT, *winograd_forms(self.kernel, self.stride)


_LAYER = re.compile(r"(\d+)x(\d+)x(\d+)-(\d+)k(\d+)s(\d+)p(\d+)=(\w+)")


def parse_layers(text: str) -> dict[ConvolutionShape, Form]:
    """The form by shape, from "120x160x64-64k3s1p1=winograd4, ..." (height x width x channels - filters k
    side of the filter s stride p padding). Raises ValueError for anything else."""
    layers: dict[ConvolutionShape, Form] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _LAYER.fullmatch(part)
        shape = ConvolutionShape(*map(int, found.groups()[:-1])) if found else None
        forms = {form.algorithm: form for form in shape.forms} if shape else {}
        form = forms.get(found[8]) if found else None
        if shape is None or form is None:
            expected = f"HxWxC-FkKsSpP=ALGORITHM with one of {', '.join(FIXED_CONVOLUTIONS)}"
            raise ValueError(f"convolution_layers: '{part}' is no layer, expected {expected}")
        if shape in layers:
            raise ValueError(f"convolution_layers: {shape} is there twice, expected it once")
        layers[shape] = form
    return layers


def format_layers(forms: Mapping[ConvolutionShape, Form]) -> str:
    """What :func:`parse_layers` reads."""
    return ", ".join(f"{shape}={form.algorithm}" for shape, form in forms.items())


def winograd_forms(kernel: int, stride: int) -> tuple[Form, ...]:
    """Those of Winograd's method for square filters of this side with this stride, if there are any."""
    return _WINOGRAD.get((kernel, stride), ())
