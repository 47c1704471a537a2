from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.fidelity.check import OutputReport
from vla_simd_ros.fidelity.measure import Distance, distance


def report(error: float, error_float64: float, departure: float) -> OutputReport:
    first, second, third = (Distance(x, x, x) for x in (error, error_float64, departure))
    return OutputReport("action", (5, 6), 1.0, first, second, third)


@pytest.mark.parametrize(
    ("error", "error_float64", "departure", "passed"),
    [
        (1.9e-6, 1.9e-6, 1e-7, True),
        (2.1e-6, 1.9e-6, 1e-7, False),
        (1.9e-6, 2.1e-6, 1e-7, False),
        (2.1e-6, 1.5e-6, 1e-6, False),
        # The reference in float32 is itself off: only float64 tells who is right.
        (2.41e-6, 1.09e-6, 1.32e-6, True),
        (1.9e-6, 2.1e-6, 1.32e-6, False),
        (3.6e-6, 1.9e-6, 1.8e-6, True),
        (1e-6, 2.8e-6, 1.8e-6, False),
        (9e-6, 4.4e-6, 3e-6, True),
        (1e-6, 4.6e-6, 3e-6, False),
        (float("nan"), float("nan"), 1e-7, False),
        (float("nan"), float("nan"), 3e-6, False),
        (float("nan"), float("inf"), float("inf"), False),
    ],
)
def test_verdict(error: float, error_float64: float, departure: float, passed: bool) -> None:
    assert report(error, error_float64, departure).passed is passed


def test_two_that_are_equally_good_pass_each_others_check() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        truth = rng.normal(size=(5, 6))
        truth /= np.abs(truth).max()
        ours, theirs = (truth + rng.uniform(-1, 1, truth.shape) * rng.uniform(0, 2e-6) for _ in range(2))
        errors = distance(ours, theirs), distance(ours, truth), distance(theirs, truth)
        worse = errors[1].relative > errors[2].relative
        assert worse or OutputReport("action", (5, 6), 1.0, *errors).passed, errors
