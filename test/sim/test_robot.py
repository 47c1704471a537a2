"""The simulated robot's clock, commands and cameras."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.sim.arm import HOME
from vla_simd_ros.sim.mjcf import TIMESTEP
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.robot import SimulatedRobot

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")


@pytest.fixture
def robot() -> SimulatedRobot:
    return SimulatedRobot(width=32, height=24, renderer="opencv")


def test_commands_move_the_joints(robot: SimulatedRobot) -> None:
    robot.set_command(HOME + 0.3 * np.eye(6)[0])
    robot.step(0.1)
    assert robot.joint_positions[0] > 0.0
    assert robot.joint_velocities[0] > 0.0
    robot.step(2.0)
    assert robot.joint_positions[0] == pytest.approx(0.3, abs=0.02)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.0, 0.02), min_size=1, max_size=30))
def test_no_time_is_lost_between_steps(durations: list[float]) -> None:
    robot = SimulatedRobot(width=8, height=8, renderer="opencv")
    for duration in durations:
        robot.step(duration)
    assert sum(durations) - TIMESTEP < robot.time + 1e-9
    assert robot.time <= sum(durations) + 1e-9


@pytest.mark.parametrize("dt", [-0.01, float("nan"), float("inf")])
def test_impossible_durations_are_errors(robot: SimulatedRobot, dt: float) -> None:
    with pytest.raises(SimulationError, match="time to simulate: got"):
        robot.step(dt)


def test_a_picture_carries_the_time_of_its_state(robot: SimulatedRobot) -> None:
    robot.step(0.25)
    captured = robot.snapshot()
    shown = robot.render("front")
    assert shown.time == captured.time == pytest.approx(0.25)
    robot.set_command(HOME + 0.5)
    robot.step(0.5)
    late = robot.render("front", captured)
    assert late.time == captured.time
    np.testing.assert_array_equal(late.image, shown.image)
    assert robot.render("front").time == pytest.approx(0.75)


def test_renderer_is_opened_by_the_first_picture(robot: SimulatedRobot) -> None:
    assert robot.renderer_name == ""
    robot.render("wrist")
    assert robot.renderer_name == "opencv"
    robot.close()
    assert robot.renderer_name == ""


def test_unknown_camera(robot: SimulatedRobot) -> None:
    with pytest.raises(SimulationError, match="camera: got 'top', expected one of front, wrist"):
        robot.render("top")


def test_size_must_be_positive() -> None:
    with pytest.raises(SimulationError, match="got 0x24 pixels"):
        SimulatedRobot(width=0, height=24)


def test_reset(robot: SimulatedRobot) -> None:
    robot.set_command(HOME + 0.2)
    robot.step(1.0)
    robot.reset()
    assert robot.time == 0.0
    np.testing.assert_array_equal(robot.command, HOME)
