"""Which algorithm computes a linear layer."""

from __future__ import annotations

from collections.abc import Callable

from vla_simd_ros.graph.int8 import INT8, precision_of
from vla_simd_ros.graph.ir import Op
from vla_simd_ros.graph.storage import matrix_shape

LINEARS = ("auto", "direct", "strassen")
"""Settings. "strassen" computes layers that divide into quarters by seven products of sums of quarters in
place of eight of quarters, which rounds about twice as much and keeps weights in 7/4 of the memory; "auto"
does so where the layer is large enough to be faster by it."""

EXACT_LINEARS = ("direct",)
"""Those that keep the actions as close to float64 as fp32 can."""

# Smaller layers gain nothing: what is saved grows with the volume, and what is added up with the surface.
_LEAST_ROWS, _LEAST_SIDE = 256, 512


def by_strassen(op: Op, setting: str, fits: Callable[[int, int], bool]) -> bool:
    """Whether the fp32 linear layer ``op`` is computed by Strassen's method; ``fits`` tells whether columns
    and depth divide into quarters of whole panels."""
    if op.kind != "linear" or precision_of(op.attrs) == INT8 or setting == "direct":
        return False
    (rows, cols), depth = matrix_shape(op.output), list(op.operands())[1].shape[1]
    large = rows >= _LEAST_ROWS and min(cols, depth) >= _LEAST_SIDE
    return (large or setting == "strassen") and fits(cols, depth)
