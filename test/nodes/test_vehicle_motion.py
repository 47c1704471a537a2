"""Odometry as columns of a state."""

from __future__ import annotations

import math
from types import SimpleNamespace as Made
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.control.joint_buffer import JointStateError, select_joints
from vla_simd_ros.nodes.vehicle_motion import COLUMNS, VehicleMotion
from vla_simd_ros.policies.blocks import trajectory


def odometry(yaw: float, **changes: Any) -> Any:
    """A vehicle at (10, -20, 1) that is a little inclined and drives at 8 m/s to the left."""
    # Roll first, then yaw: Hamilton's product of both quaternions.
    roll = 0.02
    cr, sr, cy, sy = math.cos(roll / 2), math.sin(roll / 2), math.cos(yaw / 2), math.sin(yaw / 2)
    orientation = Made(x=cy * sr, y=sy * sr, z=sy * cr, w=cy * cr)
    pose = Made(position=Made(x=10.0, y=-20.0, z=1.0), orientation=changes.get("orientation", orientation))
    twist = Made(linear=Made(x=8.0, y=0.25, z=0.0), angular=Made(x=0.0, y=0.0, z=0.5))
    return Made(header="when", pose=Made(pose=pose), twist=Made(twist=twist))


def test_every_column_of_a_planners_state_is_there_by_name() -> None:
    motion = VehicleMotion().read(odometry(0.6))
    assert motion.header == "when"
    assert set(trajectory.STATE) <= set(COLUMNS)
    state = select_joints(motion.name, motion.position, trajectory.STATE)
    expected = [10.0, -20.0, 0.6, math.cos(0.6), math.sin(0.6), 8.0, 0.25, 0.5]
    assert state == pytest.approx(expected)
    assert select_joints(motion.name, motion.position, ["z"]) == pytest.approx([1.0])


def test_the_yaw_runs_on_beyond_half_a_turn() -> None:
    motion = VehicleMotion()
    angles = np.linspace(0.0, 20.0, 60)
    read = [motion.read(odometry(float(angle))).position[COLUMNS.index("yaw")] for angle in angles]
    np.testing.assert_allclose(read, angles, atol=1e-9)
    back = [motion.read(odometry(float(angle))).position[3] for angle in angles[::-1]]
    np.testing.assert_allclose(back, angles[::-1], atol=1e-9)


@pytest.mark.parametrize(
    "orientation", [(0.0, 0.0, 0.0, 0.0), (math.nan, 0.0, 0.0, 1.0), (0.0, 0.0, 2.0, 0.0)]
)
def test_an_orientation_that_is_none_makes_the_state_unusable(orientation: tuple[float, ...]) -> None:
    motion = VehicleMotion()
    motion.read(odometry(3.0))
    wrong = motion.read(odometry(0.0, orientation=Made(**dict(zip("xyzw", orientation, strict=True)))))
    with pytest.raises(JointStateError, match="'yaw' is nan, expected a finite number"):
        select_joints(wrong.name, wrong.position, ["x", "yaw"])
    assert motion.read(odometry(3.2)).position[3] == pytest.approx(3.2), "the next one is used again"
