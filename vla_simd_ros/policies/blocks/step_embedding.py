"""The sine table of solver steps."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from vla_simd_ros.graph.ir import Array

_LONGEST = 10000


@lru_cache(maxsize=8)
def step_embeddings(count: int, width: int) -> Array:
    """One row for each of the times 0 to ``count - 1``, float32 [count, width]: all sines, then all cosines.

    Frequencies and angles are rounded to float32, as in the model that was trained with them; exponentials,
    sines and cosines are correctly rounded.
    """
    half = width // 2
    exponent = np.arange(half, dtype=np.float32) * np.float32(-(math.log(_LONGEST) / (half - 1)))
    frequency = np.exp(exponent.astype(np.float64)).astype(np.float32)
    angle = (np.arange(count, dtype=np.float32)[:, None] * frequency).astype(np.float64)
    table: Array = np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)
    table.flags.writeable = False
    return table
