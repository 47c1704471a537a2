from __future__ import annotations

import pytest

from vla_simd_ros.fidelity.check import OutputReport
from vla_simd_ros.fidelity.measure import Distance


def report(error: float, error_float64: float, departure: float) -> OutputReport:
    first, second, third = (Distance(x, x, x) for x in (error, error_float64, departure))
    return OutputReport("action", (5, 6), 1.0, first, second, third)


@pytest.mark.parametrize(
    ("error", "error_float64", "departure", "passed"),
    [
        (1.9e-6, 1.9e-6, 1e-7, True),
        (2.1e-6, 1.9e-6, 1e-7, False),
        (1.9e-6, 2.1e-6, 1e-7, False),
        # The reference in float32 is itself off: only float64 tells who is right.
        (9e-6, 4.4e-6, 3e-6, True),
        (1e-6, 4.6e-6, 3e-6, False),
        (float("nan"), float("nan"), 1e-7, False),
        (float("nan"), float("nan"), 3e-6, False),
        (float("nan"), float("inf"), float("inf"), False),
    ],
)
def test_verdict(error: float, error_float64: float, departure: float, passed: bool) -> None:
    assert report(error, error_float64, departure).passed is passed
