"""Commands: what is accepted, what is refused and why, and the set point over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.sim.arm import JOINT_NAMES
from vla_simd_ros.sim.trajectory import CommandError, CommandFollower, parse_trajectory

NAMES = list(JOINT_NAMES)
ROW = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


@given(st.permutations(range(6)))
def test_joints_may_come_in_any_order(order: list[int]) -> None:
    parsed = parse_trajectory([NAMES[index] for index in order], [[ROW[index] for index in order]], [0.5])
    np.testing.assert_array_equal(parsed.positions, [ROW])


@pytest.mark.parametrize(
    ("names", "rows", "times", "message"),
    [
        ([*NAMES[:5], "thumb"], [ROW], [0.0], "joint 'thumb': unknown, expected shoulder_pan, "),
        ([*NAMES, "gripper"], [[*ROW, 0.0]], [0.0], "joint 'gripper': got it 2 times, expected once"),
        (NAMES[:4], [ROW[:4]], [0.0], "no position for wrist_roll, gripper"),
        (NAMES, [], [], "got no points"),
        (NAMES, [ROW, ROW[:5]], [0.0, 1.0], "point 1: got 5 positions, expected 6"),
        (NAMES, [ROW, [0.0, 0.0, np.nan, 0.0, 0.0, 0.0]], [0.0, 1.0], "point 1, joint 'elbow_flex': got nan"),
        (NAMES, [[np.inf, *ROW[1:]]], [0.0], "point 0, joint 'shoulder_pan': got inf"),
        (NAMES, [ROW, ROW], [1.0, 1.0], r"time_from_start: got \[1.0, 1.0\] s"),
        (NAMES, [ROW], [-0.1], r"time_from_start: got \[-0.1\] s, expected zero or more and increasing"),
    ],
)
def test_refused_commands(
    names: list[str], rows: list[list[float]], times: list[float], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        parse_trajectory(names, rows, times)


@pytest.fixture
def follower() -> CommandFollower:
    return CommandFollower(np.zeros(6), timeout=1.0)


def test_without_a_command_the_start_is_held(follower: CommandFollower) -> None:
    np.testing.assert_array_equal(follower.sample(100.0), np.zeros(6))
    assert not follower.following


def test_a_point_without_a_time_is_the_target_at_once(follower: CommandFollower) -> None:
    follower.accept(parse_trajectory(NAMES, [ROW], [0.0]), received=5.0, start_time=5.0)
    np.testing.assert_array_equal(follower.sample(5.0), ROW)


def test_points_are_reached_on_straight_lines_and_the_last_one_is_kept(follower: CommandFollower) -> None:
    rows = [ROW, [2.0 * value for value in ROW]]
    follower.accept(parse_trajectory(NAMES, rows, [0.2, 0.4]), received=5.0, start_time=5.0)
    np.testing.assert_allclose(follower.sample(5.1), 0.5 * np.array(ROW))
    np.testing.assert_allclose(follower.sample(5.3), 1.5 * np.array(ROW))
    np.testing.assert_allclose(follower.sample(5.9), 2.0 * np.array(ROW))


def test_a_new_command_starts_from_the_present_set_point(follower: CommandFollower) -> None:
    follower.accept(parse_trajectory(NAMES, [np.ones(6).tolist()], [1.0]), received=0.0, start_time=0.0)
    follower.accept(parse_trajectory(NAMES, [np.zeros(6).tolist()], [0.5]), received=0.5, start_time=0.5)
    np.testing.assert_allclose(follower.sample(0.5), np.full(6, 0.5))
    np.testing.assert_allclose(follower.sample(0.75), np.full(6, 0.25))


def test_points_of_the_past_are_skipped(follower: CommandFollower) -> None:
    rows = [[9.0] * 6, [1.0] * 6]
    follower.accept(parse_trajectory(NAMES, rows, [0.1, 0.5]), received=0.3, start_time=0.0)
    np.testing.assert_allclose(follower.sample(0.4), np.full(6, 0.5))
    follower.accept(parse_trajectory(NAMES, rows, [0.1, 0.2]), received=0.45, start_time=0.0)
    np.testing.assert_allclose(follower.sample(0.45), np.ones(6))


def test_a_command_that_got_old_is_dropped_and_the_set_point_holds(follower: CommandFollower) -> None:
    follower.accept(parse_trajectory(NAMES, [[2.0] * 6], [2.0]), received=0.0, start_time=0.0)
    np.testing.assert_allclose(follower.sample(0.9), np.full(6, 0.9))
    assert not follower.timed_out(1.0)
    assert follower.timed_out(1.1)
    np.testing.assert_allclose(follower.sample(1.5), np.full(6, 0.9))
    assert not follower.following


def test_a_timeout_of_zero_never_ends_a_command() -> None:
    follower = CommandFollower(np.zeros(6), timeout=0.0)
    follower.accept(parse_trajectory(NAMES, [[100.0] * 6], [100.0]), received=0.0, start_time=0.0)
    np.testing.assert_allclose(follower.sample(50.0), np.full(6, 50.0))


def test_hold(follower: CommandFollower) -> None:
    follower.accept(parse_trajectory(NAMES, [[1.0] * 6], [1.0]), received=0.0, start_time=0.0)
    follower.sample(0.25)
    follower.hold()
    np.testing.assert_allclose(follower.sample(0.75), np.full(6, 0.25))
