from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.fidelity.measure import BOUND, allowed, distance


def test_distance() -> None:
    measured = distance(np.array([1.0, 2.0, -4.5]), np.array([1.0, 2.5, -4.0]))

    assert measured.absolute == 0.5
    assert measured.relative == 0.125
    assert measured.rms == pytest.approx(np.sqrt(0.5 / 23.25))


def test_equal_arrays_are_not_apart() -> None:
    values = np.array([1.0, 2.0])

    assert distance(values, values).relative == 0


@pytest.mark.parametrize(("actual", "relative"), [(0.0, 0.0), (1e-9, 1.0)])
def test_expected_zeros(actual: float, relative: float) -> None:
    measured = distance(np.array([actual]), np.array([0.0]))

    assert measured.relative == measured.rms == relative


def test_what_is_no_number_is_not_close() -> None:
    measured = distance(np.array([np.nan, 1.0]), np.array([1.0, 1.0]))

    assert not measured.relative <= 1e9


def test_bound_follows_the_departure_of_the_reference() -> None:
    assert allowed(0) == BOUND == 2e-6
    assert allowed(1e-6) == BOUND
    assert allowed(4e-6) == pytest.approx(6e-6)
