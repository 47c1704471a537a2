"""The mapping between simulated time and a clock, driven by a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.sim.pacing import MAX_LAG, Pacer

GRID = 0.02
START = 1_700_000_000_000_000_000
MS = 1_000_000


def test_simulation_keeps_step_with_the_clock() -> None:
    pacer = Pacer(GRID)
    assert pacer.target(START, 0.0) == 0.0
    assert pacer.target(START + 10 * MS, 0.0) == pytest.approx(0.01)
    assert pacer.target(START + 25 * MS, 0.01) == pytest.approx(0.025)


def test_stamps_name_the_captured_instant_not_the_present() -> None:
    pacer = Pacer(GRID)
    pacer.target(START, 0.0)
    pacer.target(START + 100 * MS, 0.0)
    assert pacer.stamp(0.034) == START + 34 * MS
    assert pacer.simulated(START + 34 * MS) == pytest.approx(0.034)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=50))
def test_stamps_never_go_back_while_the_clock_does_not(waits: list[int]) -> None:
    pacer = Pacer(GRID)
    now, simulated, last = START, 0.0, 0
    for wait in waits:
        now += wait * MS
        simulated = max(simulated, pacer.target(now, simulated))
        stamp = pacer.stamp(simulated)
        assert last <= stamp <= now
        last = stamp


@given(st.floats(0.001, 0.2), st.floats(0.25, 8.0), st.floats(1.05, 1000.0))
def test_time_of_a_long_stall_is_given_up_in_whole_grids(grid: float, speed: float, lags: float) -> None:
    pacer = Pacer(grid, speed)
    pacer.target(START, 0.0)
    behind = MAX_LAG * max(1.0, speed) * lags  # simulated seconds
    late = START + round((0.01 + behind) / speed * 1e9)
    goes_on = pacer.target(late, 0.01)
    assert 0.01 <= goes_on <= 0.01 + grid + 1e-6
    given_up = pacer.given_up_s
    assert given_up == pytest.approx((0.01 + behind - goes_on) / speed, abs=1e-6)
    # The clock's time of a simulated event has moved by whole periods.
    periods = given_up * speed / grid
    assert periods == pytest.approx(round(periods), abs=1e-6) and periods > 0
    assert pacer.stamp(0.25) - START == pytest.approx((0.25 / speed + given_up) * 1e9, abs=2)
    # And the simulation keeps step again.
    soon = late + round(0.01 / speed * 1e9)
    assert pacer.target(soon, goes_on) == pytest.approx(goes_on + 0.01, abs=1e-6)
    assert pacer.stalls == 1


def test_a_lag_that_is_caught_up_with_gives_nothing_up() -> None:
    pacer = Pacer(GRID)
    pacer.target(START, 0.0)
    assert pacer.target(START + 240 * MS, 0.0) == pytest.approx(0.24)
    assert (pacer.stalls, pacer.given_up_s) == (0, 0.0)


def test_a_stall_shorter_than_the_grid_is_caught_up_with() -> None:
    pacer = Pacer(grid=2.0)
    pacer.target(START, 0.0)
    assert pacer.target(START + 900 * MS, 0.0) == pytest.approx(0.9)
    assert (pacer.stalls, pacer.given_up_s) == (0, 0.0)


def test_clock_that_jumps_back_is_followed() -> None:
    pacer = Pacer(GRID)
    pacer.target(START, 5.0)
    earlier = START - 3600 * 1000 * MS
    assert pacer.target(earlier, 5.0) == 5.0
    assert pacer.stamp(5.0) == earlier
    assert (pacer.stalls, pacer.given_up_s) == (1, -3600.0)


def test_small_step_back_of_the_clock_only_waits() -> None:
    pacer = Pacer(GRID)
    pacer.target(START, 0.0)
    assert pacer.target(START + 20 * MS, 0.03) == 0.03


def test_faster_than_the_clock() -> None:
    pacer = Pacer(GRID, speed=4.0)
    pacer.target(START, 0.0)
    assert pacer.target(START + 10 * MS, 0.0) == pytest.approx(0.04)
    assert pacer.stamp(0.04) == START + 10 * MS


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_speeds(speed: float) -> None:
    with pytest.raises(ValueError, match="speed of the simulation: got"):
        Pacer(GRID, speed)


@pytest.mark.parametrize("grid", [0.0, -0.1, float("inf"), float("nan")])
def test_impossible_grids(grid: float) -> None:
    with pytest.raises(ValueError, match="grid of the simulation: got"):
        Pacer(grid)
