"""Joint units of a policy against those of the robot."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.control.units import UNITS, JointUnits


def test_every_unit_maps_its_landmarks() -> None:
    units = JointUnits(["rad", "deg", "range_0_100", "range_m100_100"], [0, 0, -0.2, -1.0], [0, 0, 1.8, 3.0])
    assert units.to_policy(np.array([0.5, np.pi / 2, -0.2, -1.0])) == pytest.approx([0.5, 90, 0, -100])
    assert units.to_policy(np.array([0.5, -np.pi, 1.8, 3.0])) == pytest.approx([0.5, -180, 100, 100])
    assert units.to_policy(np.array([0.5, 0.0, 0.8, 1.0])) == pytest.approx([0.5, 0, 50, 0])


def test_a_chunk_is_converted_back_row_by_row() -> None:
    units = JointUnits(UNITS, [-1.0] * 4, [2.0] * 4)
    rows = np.random.default_rng(0).uniform(-1, 2, (7, 4))
    assert units.to_robot(units.to_policy(rows)) == pytest.approx(rows)


@pytest.mark.parametrize(
    ("units", "lower", "upper", "words"),
    [
        (["turns"], [0.0], [1.0], "'turns', expected one of rad, deg"),
        (["range_0_100"], [1.0], [1.0], "needs a finite range, got 1.0 to 1.0"),
        (["range_0_100"], [-math.inf], [1.0], "needs a finite range, got -inf to 1.0"),
        (["rad", "rad"], [0.0], [1.0], "2 joint units, 1 lower and 1 upper"),
    ],
)
def test_bad_units_are_named(units: list[str], lower: list[float], upper: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        JointUnits(units, lower, upper)
