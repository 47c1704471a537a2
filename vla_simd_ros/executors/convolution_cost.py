"""What an algorithm for a convolution is expected to cost, from the shape: the rule of the setting "auto".

The rule is fitted to measurements: the times of all algorithms for 219 shapes (maps of 3x3 to 120x160, 16 to
512 channels), with filters in the caches and with filters from memory, on AVX-512, AVX2 and the portable
kernels. It is a rule, and not a measurement at load, so that the same shape has the same algorithm, and the
actions the same bits, in every process and on every machine with the instruction set.
"""

from __future__ import annotations

import math

from vla_simd_ros.executors.convolution_forms import ConvolutionShape, Form

# A tile of fewer rows takes as long as one of these: its sums wait for each other, and for the filters.
_LEAST_ROWS = 6
# Floating-point operations in the time that a byte of filters takes, for each column of the register tile:
# from a cache near the core, which holds the first _NEAR_BYTES of them, and from further away.
_NEAR, _FAR = 1 / 8, 1 / 4
_NEAR_BYTES = 512 << 10
# The same for a value that is transformed, of an image's tiles and of the results, and one that is copied.
_PER_TRANSFORMED, _PER_COPIED = 14, 24

_FLOAT_BYTES = 4
_LINE = 16  # Winograd's method for 3x3 filters takes so many channels at a time


def expected_cost(shape: ConvolutionShape, form: Form, tile: tuple[int, int]) -> float:
    """Time in floating-point operations of a full register ``tile`` of so many rows and columns: that of the
    products, or of reading the filters where that is longer, and that of what surrounds them."""
    rows, depth, moved = _product(shape, form, tile[0])
    half_tile = tile[1] // 2
    columns = math.ceil(shape.filters / half_tile) * half_tile
    filter_bytes = _FLOAT_BYTES * depth * shape.filters
    near = min(filter_bytes, _NEAR_BYTES)
    reading = tile[1] * (_NEAR * near + _FAR * (filter_bytes - near))
    return max(2 * rows * depth * columns, reading) + moved


def _product(shape: ConvolutionShape, form: Form, tile_rows: int) -> tuple[int, int, float]:
    """Rows that are paid for and depth of the matrix products of an algorithm, all of one size, and the cost
    of what surrounds them."""
    height, width = shape.out_size
    if form.side:
        tiles = form.tiles(height, width)
        channels = shape.channels if shape.kernel != 3 else math.ceil(shape.channels / _LINE) * _LINE
        transformed = tiles * form.values * (shape.channels + shape.filters)
        return _paid_rows(tiles, tile_rows), form.products * channels, _PER_TRANSFORMED * transformed
    depth = shape.kernel**2 * shape.channels
    if form.flat:
        return _paid_rows(height * width, tile_rows), depth, _PER_COPIED * height * width * depth
    # Where patches stay in the image, a tile's rows are of one line of it.
    return height * _paid_rows(width, tile_rows), depth, 0.0


def _paid_rows(rows: int, tile_rows: int) -> int:
    """``rows`` shared out evenly to register tiles, each counted with at least :data:`_LEAST_ROWS`."""
    tiles = math.ceil(rows / tile_rows)
    size, larger = divmod(rows, tiles)
    return larger * max(size + 1, _LEAST_ROWS) + (tiles - larger) * max(size, _LEAST_ROWS)
