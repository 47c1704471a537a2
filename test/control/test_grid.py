"""Control steps from the calls of a jittering timer."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.control.grid import ControlGrid

PERIOD = 33_333_333


def test_punctual_calls_are_one_step_each() -> None:
    grid = ControlGrid(PERIOD)
    assert [grid.next(100 + i * PERIOD) for i in range(4)] == [100 + i * PERIOD for i in range(4)]


def test_jitter_below_half_a_period_is_removed() -> None:
    grid = ControlGrid(PERIOD)
    calls = [0, PERIOD + 9_000_000, 2 * PERIOD - 9_000_000, 3 * PERIOD + 16_000_000]
    assert [grid.next(t) for t in calls] == [0, PERIOD, 2 * PERIOD, 3 * PERIOD]


def test_late_steps_and_those_left_out_are_counted() -> None:
    grid = ControlGrid(PERIOD)
    for time_ns in (0, PERIOD + 4_900_000, 2 * PERIOD + 5_100_000, 2 * PERIOD + 5_200_000, 6 * PERIOD):
        grid.next(time_ns)
    assert (grid.steps, grid.late) == (7, 4)
    grid.reset()
    grid.next(99 * PERIOD)
    assert (grid.steps, grid.late) == (8, 4)


def test_a_second_call_in_the_same_step_is_none() -> None:
    grid = ControlGrid(PERIOD)
    grid.next(0)
    assert grid.next(int(1.9 * PERIOD)) == 2 * PERIOD
    assert grid.next(2 * PERIOD) is None


@pytest.mark.parametrize("late", [0.3, 0.45, 0.52, 0.55, 0.8])
def test_a_late_first_call_costs_no_later_step(late: float) -> None:
    grid, jitter = ControlGrid(PERIOD), random.Random(0)
    grid.next(int(late * PERIOD))
    grid.next(PERIOD)  # may lie in the same step
    steps = [grid.next(int((i + 0.05 * jitter.random()) * PERIOD)) for i in range(2, 300)]
    assert None not in steps
    gaps = {round((b - a) / PERIOD) for a, b in pairwise(steps[1:])}  # type: ignore[operator]
    assert gaps == {1}


@pytest.mark.parametrize(
    ("now", "wait"),
    [
        (2.0, 1.0),
        (2.25, 0.75),
        (1.75, 1.25),  # called early: the step of 2 is done
        (3.0, 0.0),
        (3.25, 0.0),  # overdue, and still the step of 3
        (3.75, 0.25),  # the step of 3 is left out
        (7.0, 0.0),
    ],
)
def test_the_next_step_is_awaited_from_wherever_a_call_ends(now: float, wait: float) -> None:
    grid = ControlGrid(PERIOD)
    assert grid.until_next(int(now * PERIOD)) == PERIOD
    grid.next(5)
    grid.next(5 + 2 * PERIOD)
    assert grid.until_next(5 + int(now * PERIOD)) == pytest.approx(wait * PERIOD, abs=2)


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=50))
def test_a_timer_that_waits_for_the_next_step_keeps_the_phase(stalls: list[float]) -> None:
    grid, now = ControlGrid(PERIOD), 0
    grid.next(now)
    for stall in stalls:
        now += int(stall * PERIOD)
        now += grid.until_next(now)
        step = grid.next(now)
        assert step is not None
        # A call is late by what it was held up, and what follows it is not.
        now += grid.until_next(now)
        assert grid.next(now) == now


def test_after_a_reset_the_next_call_starts_the_grid() -> None:
    grid = ControlGrid(PERIOD)
    grid.next(50 * PERIOD)
    grid.reset()
    assert grid.next(7) == 7


@given(st.lists(st.integers(0, 3 * PERIOD), min_size=1, max_size=60))
def test_steps_only_go_forwards_and_stay_within_half_a_period(waits: list[int]) -> None:
    grid, now, last = ControlGrid(PERIOD), 0, -1
    for wait in waits:
        now += wait
        step = grid.next(now)
        if step is None:
            continue
        assert step > last
        assert abs(step - now) <= PERIOD // 2 + 1
        last = step
