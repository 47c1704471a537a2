"""A machine with round numbers."""

from __future__ import annotations

from vla_simd_ros.benchmarks.roofline import Roofline

ROUND = Roofline(
    "avx2",
    1,
    {"avx2": 100.0, "avx512": 199.0},
    {1 << 14: 400.0, 1 << 18: 200.0, 1 << 22: 100.0, 1 << 28: 10.0},
)
