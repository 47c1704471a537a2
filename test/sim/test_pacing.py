"""The mapping between simulated time and a clock, driven by a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.sim.pacing import MAX_LAG, Pacer

START = 1_700_000_000_000_000_000
MS = 1_000_000


def test_simulation_keeps_step_with_the_clock() -> None:
    pacer = Pacer()
    assert pacer.target(START, 0.0) == 0.0
    assert pacer.target(START + 10 * MS, 0.0) == pytest.approx(0.01)
    assert pacer.target(START + 25 * MS, 0.01) == pytest.approx(0.025)


def test_stamps_name_the_captured_instant_not_the_present() -> None:
    pacer = Pacer()
    pacer.target(START, 0.0)
    pacer.target(START + 100 * MS, 0.0)
    assert pacer.stamp(0.034) == START + 34 * MS
    assert pacer.simulated(START + 34 * MS) == pytest.approx(0.034)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=50))
def test_stamps_never_go_back_while_the_clock_does_not(waits: list[int]) -> None:
    pacer = Pacer()
    now, simulated, last = START, 0.0, 0
    for wait in waits:
        now += wait * MS
        simulated = max(simulated, pacer.target(now, simulated))
        stamp = pacer.stamp(simulated)
        assert last <= stamp <= now
        last = stamp


def test_time_of_a_long_stall_is_given_up() -> None:
    pacer = Pacer()
    pacer.target(START, 0.0)
    late = START + round((MAX_LAG + 1.0) * 1e9)
    assert pacer.target(late, 0.01) == 0.01
    assert pacer.stamp(0.01) == late
    assert pacer.target(late + 10 * MS, 0.01) == pytest.approx(0.02)


def test_clock_that_jumps_back_is_followed() -> None:
    pacer = Pacer()
    pacer.target(START, 5.0)
    assert pacer.target(START - 3600 * 1000 * MS, 5.0) == 5.0
    assert pacer.stamp(5.0) == START - 3600 * 1000 * MS


def test_small_step_back_of_the_clock_only_waits() -> None:
    pacer = Pacer()
    pacer.target(START, 0.0)
    assert pacer.target(START + 20 * MS, 0.03) == 0.03


def test_faster_than_the_clock() -> None:
    pacer = Pacer(speed=4.0)
    pacer.target(START, 0.0)
    assert pacer.target(START + 10 * MS, 0.0) == pytest.approx(0.04)
    assert pacer.stamp(0.04) == START + 10 * MS


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_speeds(speed: float) -> None:
    with pytest.raises(ValueError, match="speed of the simulation: got"):
        Pacer(speed)
