"""The arm's data and its kinematics, against known points and against MuJoCo's own kinematics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.sim.arm import HOME, JOINT_NAMES, LINKS, LOWER, UPPER, forward_kinematics, rotation
from vla_simd_ros.sim.mjcf import TIMESTEP
from vla_simd_ros.sim.physics import Physics

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")


def test_joints_are_those_of_the_real_arm() -> None:
    expected = {
        "shoulder_pan": (-1.91986, 1.91986),
        "shoulder_lift": (-1.74533, 1.74533),
        "elbow_flex": (-1.69, 1.69),
        "wrist_flex": (-1.65806, 1.65806),
        "wrist_roll": (-2.74385, 2.84121),
        "gripper": (-0.174533, 1.74533),
    }
    assert list(JOINT_NAMES) == list(expected)
    np.testing.assert_allclose(np.stack([LOWER, UPPER], axis=1), list(expected.values()))


def test_home_is_inside_the_limits() -> None:
    assert (LOWER < HOME).all()
    assert (HOME < UPPER).all()


def test_at_zero_the_arm_reaches_forward_with_its_upper_arm_upright() -> None:
    poses = forward_kinematics(np.zeros(6))
    np.testing.assert_allclose(poses["upper_arm"][:3, 3], (0.0692, 0.0, 0.1166), atol=1e-9)
    np.testing.assert_allclose(poses["lower_arm"][:3, 3], (0.0972, 0.0, 0.2292), atol=1e-9)
    np.testing.assert_allclose(poses["gripper_body"][:3, 3], (0.2932, 0.0, 0.2344), atol=1e-9)
    for pose in poses.values():
        np.testing.assert_allclose(pose[:3, :3], np.eye(3), atol=1e-12)


def test_panning_a_quarter_turn_points_the_arm_sideways() -> None:
    pose = forward_kinematics([np.pi / 2, 0.0, 0.0, 0.0, 0.0, 0.0])["gripper_body"]
    np.testing.assert_allclose(pose[:3, 3], (0.0388, -(0.2932 - 0.0388), 0.2344), atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6))
def test_kinematics_agree_with_mujoco(shares: list[float]) -> None:
    angles = LOWER + np.array(shares) * (UPPER - LOWER)
    physics = Physics(16, 16)
    physics.place(angles)
    reference = physics.link_poses()
    for name, pose in forward_kinematics(angles).items():
        np.testing.assert_allclose(pose, reference[name], atol=1e-9, err_msg=name)


def test_masses_reach_the_model() -> None:
    model = Physics(16, 16).model
    for link in LINKS:
        assert float(model.body(link.name).mass[0]) == pytest.approx(link.mass, rel=1e-4), link.name
    assert model.opt.timestep == TIMESTEP


@pytest.mark.parametrize("count", [0, 5, 7])
def test_wrong_number_of_positions_is_an_error(count: int) -> None:
    with pytest.raises(ValueError, match=r"joint positions: got shape .*, expected \(6,\)"):
        forward_kinematics(np.zeros(count))


@given(st.floats(-7.0, 7.0))
def test_rotation_is_a_rotation(angle: float) -> None:
    matrix = rotation((0.6, 0.0, 0.8), angle)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    assert np.trace(matrix) == pytest.approx(1.0 + 2.0 * np.cos(angle), abs=1e-9)
