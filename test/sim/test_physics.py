"""The arm's motion: servos reach their targets, limits hold, bad commands change nothing."""

from __future__ import annotations

import os
import sys
import types

import numpy as np
import pytest

from vla_simd_ros.sim.arm import HOME, LOWER, UPPER
from vla_simd_ros.sim.mjcf import TIMESTEP
from vla_simd_ros.sim.physics import Physics, SimulationError, load_mujoco

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

_SECOND = round(1.0 / TIMESTEP)


@pytest.fixture
def physics() -> Physics:
    return Physics(16, 16)


def test_starts_at_rest_at_home(physics: Physics) -> None:
    start = physics.snapshot()
    assert start.time == 0.0
    np.testing.assert_array_equal(start.positions, HOME)
    np.testing.assert_array_equal(start.velocities, np.zeros(6))


def test_servos_reach_and_keep_their_targets(physics: Physics) -> None:
    target = np.array([0.5, -0.3, 0.2, 0.9, -1.0, 1.0])
    physics.set_command(target)
    physics.advance(3 * _SECOND)
    # A position servo without an integrator sags a little under gravity, as the real one does.
    np.testing.assert_allclose(physics.snapshot().positions, target, atol=0.06)
    assert np.abs(physics.snapshot().velocities).max() < 0.02


def test_motion_takes_time(physics: Physics) -> None:
    physics.set_command(HOME + np.eye(6)[0])
    physics.advance(_SECOND // 20)
    pan = physics.snapshot()
    assert 0.0 < pan.positions[0] < 0.5
    assert pan.velocities[0] > 0.1


@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_joints_stop_at_their_limits(physics: Physics, direction: float) -> None:
    physics.set_command(np.full(6, direction * 100.0))
    assert (physics.command == (UPPER if direction > 0 else LOWER)).all()
    physics.advance(4 * _SECOND)
    positions = physics.snapshot().positions
    assert (positions >= LOWER - 0.03).all()
    assert (positions <= UPPER + 0.03).all()


def test_arm_does_not_go_through_the_table(physics: Physics) -> None:
    physics.set_command([0.0, 1.7, 0.2, 0.2, 0.0, 0.4])
    physics.advance(4 * _SECOND)
    assert physics.link_poses()["gripper_body"][2, 3] > -0.01


def test_cubes_rest_on_the_table_and_can_be_pushed(physics: Physics) -> None:
    physics.advance(_SECOND)
    resting = physics.snapshot().cubes
    np.testing.assert_allclose(resting[:, 2], 0.015, atol=1e-3)
    physics.place([-0.9, 0.42, -0.15, 1.15, 0.0, 0.1])
    physics.set_command([0.9, 0.42, -0.15, 1.15, 0.0, 0.1])
    physics.advance(2 * _SECOND)
    moved = np.linalg.norm(physics.snapshot().cubes[:, :2] - resting[:, :2], axis=1)
    assert moved.max() > 0.02


def test_same_commands_give_the_same_motion() -> None:
    ends = []
    for _ in range(2):
        physics = Physics(16, 16)
        physics.set_command(HOME + 0.2)
        physics.advance(_SECOND)
        ends.append(physics.snapshot())
    np.testing.assert_array_equal(ends[0].positions, ends[1].positions)
    np.testing.assert_array_equal(ends[0].cubes, ends[1].cubes)


def test_snapshot_does_not_change_with_the_world(physics: Physics) -> None:
    before = physics.snapshot()
    physics.set_command(HOME + 0.5)
    physics.advance(_SECOND)
    np.testing.assert_array_equal(before.positions, HOME)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.zeros(5), r"got shape \(5,\), expected \(6,\)"),
        ([0.0, np.nan, 0.0, 0.0, 0.0, 0.0], "'shoulder_lift' of .* is not finite"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, np.inf], "'gripper' of .* is not finite"),
    ],
)
def test_bad_commands_change_nothing(physics: Physics, targets: object, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        physics.set_command(targets)  # type: ignore[arg-type]
    np.testing.assert_array_equal(physics.command, HOME)


@pytest.mark.parametrize("poses", [np.zeros((2, 7)), np.full((3, 7), np.nan)])
def test_cubes_are_not_placed_at_bad_poses(physics: Physics, poses: np.ndarray) -> None:
    before = physics.snapshot().cubes
    with pytest.raises(SimulationError, match=r"cubes: got shape .*, expected \(3, 7\) of finite numbers"):
        physics.place_cubes(poses)
    np.testing.assert_array_equal(physics.snapshot().cubes, before)


def test_time_cannot_run_backwards(physics: Physics) -> None:
    with pytest.raises(SimulationError, match="time steps: got -1"):
        physics.advance(-1)


def test_reset(physics: Physics) -> None:
    physics.set_command(HOME + 0.3)
    physics.advance(10)
    physics.reset()
    assert physics.time == 0.0
    np.testing.assert_array_equal(physics.snapshot().positions, HOME)
    np.testing.assert_array_equal(physics.command, HOME)


def test_missing_mujoco_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(SimulationError, match=r"pip install 'vla_simd_ros\[sim\]'"):
        load_mujoco()


def test_placeholder_release_of_mujoco_is_recognized(monkeypatch: pytest.MonkeyPatch) -> None:
    placeholder = types.ModuleType("mujoco")
    placeholder.__version__ = "4.0.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mujoco", placeholder)
    with pytest.raises(SimulationError, match=r"mujoco: got version 4\.0\.0, which is empty"):
        load_mujoco()


@pytest.mark.parametrize("chosen", [None, "osmesa"])
def test_loading_leaves_the_users_choice_of_a_gl_platform(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    if chosen is not None:
        monkeypatch.setenv("MUJOCO_GL", chosen)
    load_mujoco()
    assert os.environ.get("MUJOCO_GL") == chosen
