"""Fixed position tables."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from vla_simd_ros.graph.ir import Array

_EPS = np.float32(1e-6)
_TWO_PI = np.float32(2 * math.pi)
_TEMPERATURE = 10000.0
_CUBIC = -0.75


@lru_cache(maxsize=64)
def sine_positions_2d(height: int, width: int, dim: int) -> Array:
    """Position table of an image's tokens in row-major order, float32 [height * width, dim].

    The first half of the columns encodes the row, the second the column; in each half sines and cosines
    alternate. A coordinate counts from 1 and is scaled so that the last one is 2 pi. Every step is rounded
    to float32, as in the model that the positions were trained with; powers, sines and cosines are
    correctly rounded.
    """
    rows = _half(height, dim // 2)
    columns = _half(width, dim // 2)
    table = np.empty((height, width, dim), np.float32)
    table[:, :, : dim // 2] = rows[:, None]
    table[:, :, dim // 2 :] = columns[None]
    table.flags.writeable = False
    return table.reshape(height * width, dim)


def _half(count: int, dim: int) -> Array:
    """The encoding of the coordinates 1 to ``count``, float32 [count, dim]."""
    coordinate = np.arange(1, count + 1, dtype=np.float32)
    angle = coordinate / (coordinate[-1] + _EPS) * _TWO_PI
    index = np.arange(dim, dtype=np.float32)
    exponent = np.float32(2) * np.floor(index / np.float32(2)) / np.float32(dim)
    frequency = (_TEMPERATURE ** exponent.astype(np.float64)).astype(np.float32)
    scaled = (angle[:, None] / frequency).astype(np.float64)
    encoding = np.where(np.arange(dim) % 2 == 0, np.sin(scaled), np.cos(scaled))
    return np.asarray(encoding, np.float32)


@lru_cache(maxsize=16)
def rotary_positions_2d(rows: int, columns: int, head_width: int, base: float) -> tuple[Array, Array]:
    """Cosines and sines of the angles by which patches in row-major order turn queries and keys, float32
    [rows * columns, head_width / 2].

    The first half of the columns turns with the row, the second with the column of a patch's centre, both
    measured from -1 to 1 across the image. Angles are rounded to float32 step by step, as in the reference;
    powers, sines and cosines are correctly rounded.
    """
    exponents = np.arange(0, 1, 4 / head_width, dtype=np.float32)
    powers = (base ** exponents.astype(np.float64)).astype(np.float32)
    frequencies = np.float32(1) / powers
    row, column = np.meshgrid(_centres(rows), _centres(columns), indexing="ij")
    coordinates = np.stack((row.ravel(), column.ravel()), axis=1)
    angles = (_TWO_PI * coordinates)[:, :, None] * frequencies
    flat = angles.reshape(rows * columns, -1).astype(np.float64)
    tables = np.cos(flat).astype(np.float32), np.sin(flat).astype(np.float32)
    for table in tables:
        table.flags.writeable = False
    return tables


def _centres(count: int) -> Array:
    """Centres of ``count`` patches across an image that reaches from -1 to 1."""
    half = np.arange(0.5, count, dtype=np.float32)
    centres: Array = np.float32(2) * (half / np.float32(count)) - np.float32(1)
    return centres


def resized_positions(table: Array, rows: int, columns: int) -> Array:
    """A table of learned positions [n * n, C] for an image of other than n x n patches, float32.

    Bicubic (a = -0.75), borders repeated, pixel centres aligned: as vision transformers of the transformers
    library resize theirs.
    """
    side = math.isqrt(len(table))
    square = table.astype(np.float64).reshape(side, side, -1)
    vertical = _cubic_weights(side, rows)
    horizontal = _cubic_weights(side, columns)
    resized = np.einsum("ri,ijc,kj->rkc", vertical, square, horizontal, optimize=True)
    return np.ascontiguousarray(resized.reshape(rows * columns, -1), np.float32)


def _cubic_weights(count: int, wanted: int) -> Array:
    """What each of ``count`` samples contributes to each of ``wanted`` ones, float64 [wanted, count]."""
    place = (np.arange(wanted) + 0.5) * count / wanted - 0.5
    first = np.floor(place).astype(np.int64)
    weights = np.zeros((wanted, count))
    for tap in range(-1, 3):
        sample = first + tap
        weight = _cubic(np.abs(place - sample))
        np.add.at(weights, (np.arange(wanted), np.clip(sample, 0, count - 1)), weight)
    return weights


def _cubic(distance: Array) -> Array:
    """The cubic convolution kernel at distances of 0 to 2."""
    a = _CUBIC
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)
