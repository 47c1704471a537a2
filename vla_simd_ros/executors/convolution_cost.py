"""What an algorithm for a convolution is expected to cost, from the shape: the rule of the setting "auto".

The rule is fitted to measurements: the times of all algorithms for 219 shapes (maps of 3x3 to 120x160, 16 to
512 channels), with filters in the caches and with filters from memory, on AVX-512 and AVX2, and for 162 of
them on the portable kernels. It is a rule, and not a measurement at load, so that the same shape has the same
algorithm, and the actions the same bits, in every process and on every machine with the instruction set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from vla_simd_ros.executors.convolution_forms import ConvolutionShape, Form

# A tile of fewer rows takes as long as one of these: its sums wait for each other, and for the filters.
_LEAST_ROWS = 6
# Floating-point operations in the time that a byte of filters takes, for each column of the register tile:
# from a cache near the core, which holds the first _NEAR_BYTES of them, and from further away.
_NEAR, _FAR = 1 / 8, 1 / 4
_NEAR_BYTES = 512 << 10
# The same for a value that is transformed, of an image's tiles and of the results, and one that is copied.
_PER_TRANSFORMED, _PER_COPIED = 14, 24

# Filters that take more memory must save so much of the time.
_BULKY_BYTES, _BULKY_GAIN = 40 << 20, 0.25

_FLOAT_BYTES = 4
_LINE = 16  # Winograd's method for 3x3 filters takes so many channels at a time


def cheapest(shape: ConvolutionShape, forms: Iterable[Form], tile: tuple[int, int]) -> Form:
    """The form of the least expected cost, where those with bulky filters have to be far below."""

    def weighed(form: Form) -> float:
        bulky = _filter_bytes(shape, form) > _BULKY_BYTES
        return expected_cost(shape, form, tile) / (1 - _BULKY_GAIN * bulky)

    return min(forms, key=weighed)


def expected_cost(shape: ConvolutionShape, form: Form, tile: tuple[int, int]) -> float:
    """Time in floating-point operations of a full register ``tile`` of so many rows and columns: that of the
    products, or of reading the filters where that is longer, and that of what surrounds them."""
    rows, surroundings = _product(shape, form, tile[0])
    half_tile = tile[1] // 2
    columns = math.ceil(shape.filters / half_tile) * half_tile
    filter_bytes = _filter_bytes(shape, form)
    near = min(filter_bytes, _NEAR_BYTES)
    reading = tile[1] * (_NEAR * near + _FAR * (filter_bytes - near))
    return max(2 * rows * _depth(shape, form) * columns, reading) + surroundings


def _filter_bytes(shape: ConvolutionShape, form: Form) -> int:
    return _FLOAT_BYTES * _depth(shape, form) * shape.filters


def _depth(shape: ConvolutionShape, form: Form) -> int:
    """Values that a filter has in an algorithm, over all of its matrix products."""
    if not form.side:
        return shape.kernel**2 * shape.channels
    unit = _LINE if shape.kernel == 3 else 1
    return form.products * math.ceil(shape.channels / unit) * unit


def _product(shape: ConvolutionShape, form: Form, tile_rows: int) -> tuple[int, float]:
    """Rows that are paid for in the matrix products of an algorithm, all of one size, and the cost of what
    surrounds them."""
    height, width = shape.out_size
    if form.side:
        tiles = form.tiles(height, width)
        transformed = tiles * form.values * (shape.channels + shape.filters)
        return _paid_rows(tiles, tile_rows), _PER_TRANSFORMED * transformed
    if form.flat:
        return _paid_rows(height * width, tile_rows), _PER_COPIED * height * width * _depth(shape, form)
    # Where patches stay in the image, a tile's rows are of one line of it.
    return height * _paid_rows(width, tile_rows), 0.0


def _paid_rows(rows: int, tile_rows: int) -> int:
    """``rows`` shared out evenly to register tiles, each counted with at least :data:`_LEAST_ROWS`."""
    tiles = math.ceil(rows / tile_rows)
    size, larger = divmod(rows, tiles)
    return larger * max(size + 1, _LEAST_ROWS) + (tiles - larger) * max(size, _LEAST_ROWS)
