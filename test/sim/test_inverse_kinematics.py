"""The closed form against the forward kinematics, and places that cannot be reached."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.sim.arm import LOWER, UPPER, forward_kinematics
from vla_simd_ros.sim.inverse_kinematics import Unreachable, point_down_at

AXIS = (0.0388, 0.0)
TOOL = (0.088, 0.010)


@given(st.floats(0.14, 0.23), st.floats(-1.6, 1.6), st.floats(0.0, 0.06), st.floats(-0.1, 1.7))
def test_the_tool_gets_there_pointing_down(distance: float, angle: float, z: float, gripper: float) -> None:
    point = [AXIS[0] + distance * math.cos(angle), AXIS[1] + distance * math.sin(angle), z]
    positions = point_down_at(point, TOOL, gripper)
    hand = forward_kinematics(positions)["gripper_body"]
    np.testing.assert_allclose((hand @ (TOOL[0], 0.0, TOOL[1], 1.0))[:3], point, atol=1e-9)
    np.testing.assert_allclose(hand[:3, 0], (0.0, 0.0, -1.0), atol=1e-9)
    np.testing.assert_allclose(hand[:3, 2], (math.cos(angle), math.sin(angle), 0.0), atol=1e-9)
    assert (positions >= LOWER).all() and (positions <= UPPER).all()
    assert positions[5] == gripper


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ((0.45, 0.0, 0.02), r"\(0\.450, 0\.000, 0\.020\) m is out of reach"),
        ((0.20, 0.0, 0.40), "is out of reach"),
        ((-0.15, 0.05, 0.02), "needs 'shoulder_pan' at -?[0-9.]+ rad, expected -1.920 to 1.920"),
        ((0.29, 0.0, 0.08), "needs 'wrist_flex' at"),
    ],
)
def test_places_that_cannot_be_reached(point: tuple[float, float, float], message: str) -> None:
    with pytest.raises(Unreachable, match=message):
        point_down_at(point, TOOL, 0.5)


def test_an_opening_that_the_jaws_do_not_have() -> None:
    with pytest.raises(Unreachable, match=r"needs 'gripper' at 2\.000 rad, expected -0\.175 to 1\.745"):
        point_down_at((0.22, 0.0, 0.02), TOOL, 2.0)
