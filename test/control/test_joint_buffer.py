"""Interpolation of joint states to a capture time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.control.joint_buffer import (
    JointBuffer,
    JointStateError,
    JointStateUnavailable,
    select_joints,
)

MS = 1_000_000


def buffer(*samples: tuple[int, float]) -> JointBuffer:
    joints = JointBuffer(keep_ns=1000 * MS, max_gap_ns=100 * MS, max_extrapolation_ns=20 * MS)
    for time_ms, value in samples:
        joints.add(time_ms * MS, np.array([value, -value]))
    return joints


def test_a_time_between_two_samples_is_interpolated() -> None:
    assert buffer((100, 1.0), (110, 2.0)).at(102 * MS + MS // 2) == pytest.approx([1.25, -1.25])


def test_the_time_of_a_sample_gives_that_sample() -> None:
    joints = buffer((100, 1.0), (110, 2.0), (120, 5.0))
    assert [joints.at(t * MS)[0] for t in (100, 110, 120)] == [1.0, 2.0, 5.0]


def test_just_outside_the_nearest_sample_is_held() -> None:
    joints = buffer((100, 1.0), (110, 2.0))
    assert joints.at(130 * MS)[0] == 2.0
    assert joints.at(80 * MS)[0] == 1.0


@pytest.mark.parametrize(
    ("time_ms", "words"),
    [(131, "21.0 ms after the newest"), (79, "21.0 ms before the oldest")],
)
def test_too_far_outside_is_unavailable(time_ms: int, words: str) -> None:
    with pytest.raises(JointStateUnavailable, match=words):
        buffer((100, 1.0), (110, 2.0)).at(time_ms * MS)


def test_a_long_gap_is_not_interpolated() -> None:
    with pytest.raises(JointStateUnavailable, match=r"101.0 ms apart, expected at most 100.0 ms"):
        buffer((100, 1.0), (201, 2.0)).at(150 * MS)


def test_an_empty_buffer_says_so() -> None:
    joints = buffer((100, 1.0))
    joints.clear()
    assert joints.newest() is None
    with pytest.raises(JointStateUnavailable, match="no joint state has been received"):
        joints.at(100 * MS)


def test_old_samples_are_dropped() -> None:
    joints = buffer((100, 1.0), (1150, 2.0))
    with pytest.raises(JointStateUnavailable, match="before the oldest"):
        joints.at(100 * MS)


@pytest.mark.parametrize("time_ms", [110, 100, 50])
def test_a_stamp_that_is_not_newer_is_an_error(time_ms: int) -> None:
    with pytest.raises(JointStateError, match="not newer"):
        buffer((100, 1.0), (110, 2.0), (time_ms, 3.0))


def test_results_do_not_alias_the_buffer() -> None:
    joints = buffer((100, 1.0))
    joints.at(100 * MS)[0] = 9.0
    assert joints.at(100 * MS)[0] == 1.0


@given(
    st.lists(st.integers(1, 90), min_size=2, max_size=20),
    st.floats(0.0, 1.0),
)
def test_a_linear_motion_is_recovered_at_any_time_inside(gaps: list[int], share: float) -> None:
    joints = JointBuffer(keep_ns=10_000 * MS, max_gap_ns=100 * MS, max_extrapolation_ns=0)
    times = np.cumsum(gaps)
    for time in times:
        joints.add(int(time) * MS, np.array([0.25 * float(time)]))
    when = int((times[0] + share * (times[-1] - times[0])) * MS)
    assert joints.at(when)[0] == pytest.approx(0.25 * when / MS, abs=1e-6)


def test_joints_are_picked_by_name_and_others_passed_over() -> None:
    picked = select_joints(["wheel", "lift", "pan"], [9.0, 2.0, 1.0], ["pan", "lift"])
    assert picked.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [
        (["pan"], [1.0], r"lacks \['lift'\], expected \['pan', 'lift'\]"),
        (["pan", "lift"], [1.0], "2 names but 1 positions"),
        (["pan", "pan", "lift"], [1.0, 1.0, 2.0], r"lists \['pan'\] more than once"),
        (["pan", "lift"], [1.0, float("nan")], "'lift' is nan, expected a finite number"),
        (["pan", "lift"], [float("-inf"), 1.0], "'pan' is -inf"),
        ([], [], "lacks"),
    ],
)
def test_a_bad_joint_state_is_an_error(names: list[str], positions: list[float], words: str) -> None:
    with pytest.raises(JointStateError, match=words):
        select_joints(names, positions, ["pan", "lift"])
