"""Fixed position tables."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from vla_simd_ros.graph.ir import Array

_EPS = np.float32(1e-6)
_TWO_PI = np.float32(2 * math.pi)
_TEMPERATURE = 10000.0


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
