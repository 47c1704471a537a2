"""Validation of sensor stamps."""

from __future__ import annotations

import pytest

from vla_simd_ros.control.stamps import StampFault, StampValidator

MS = 1_000_000
NOW = 10_000 * MS


def test_growing_stamps_pass() -> None:
    validator = StampValidator("camera 'front'", 50 * MS)
    assert [validator.check(NOW + i * MS, NOW + i * MS) for i in range(3)] == [None] * 3
    assert not validator.faults


@pytest.mark.parametrize(
    ("stamp", "fault", "words"),
    [
        (0, StampFault.ZERO, "the stamp is zero"),
        (-5, StampFault.ZERO, "the stamp is zero"),
        (NOW + 51 * MS, StampFault.FUTURE, "51.0 ms in the future, expected at most 50.0 ms"),
        (NOW - 2 * MS, StampFault.BACKWARDS, "1.0 ms before"),
        (NOW - MS, StampFault.REPEATED, "used already"),
    ],
)
def test_a_bad_stamp_is_counted_and_described(stamp: int, fault: StampFault, words: str) -> None:
    validator = StampValidator("camera 'front'", 50 * MS)
    assert validator.check(NOW - MS, NOW) is None
    assert validator.check(stamp, NOW) is fault
    assert validator.faults == {fault: 1}
    assert "camera 'front'" in validator.last_message
    assert words in validator.last_message


def test_the_future_tolerance_is_inclusive() -> None:
    assert StampValidator("joints", 50 * MS).check(NOW + 50 * MS, NOW) is None


def test_a_clock_that_nothing_sets_is_named() -> None:
    validator = StampValidator("joints", 50 * MS)
    assert validator.check(NOW, 0) is StampFault.FUTURE
    assert "joints: stamp 10.000000 s cannot be judged, the clock is at zero" in validator.last_message


def test_a_bad_stamp_does_not_become_the_newest_one() -> None:
    validator = StampValidator("joints", 50 * MS)
    validator.check(NOW + 1000 * MS, NOW)
    assert validator.check(NOW, NOW) is None


def test_after_a_reset_earlier_stamps_are_good_again() -> None:
    validator = StampValidator("joints", 50 * MS)
    validator.check(NOW, NOW)
    validator.reset()
    assert validator.check(5 * MS, 6 * MS) is None
