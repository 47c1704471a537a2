"""Sensor events: order, rates, and that none is early or lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.sim.mjcf import TIMESTEP
from vla_simd_ros.sim.schedule import SensorSchedule


def test_events_come_in_order_and_share_a_step() -> None:
    schedule = SensorSchedule({"joints": 100.0, "frames": 50.0})
    assert list(schedule.until(20)) == [
        (5, ["joints"]),
        (10, ["joints", "frames"]),
        (15, ["joints"]),
        (20, ["joints", "frames"]),
    ]


def test_each_event_comes_once() -> None:
    schedule = SensorSchedule({"joints": 100.0})
    assert [step for step, _ in schedule.until(10)] == [5, 10]
    assert list(schedule.until(10)) == []
    assert [step for step, _ in schedule.until(15)] == [15]


def test_the_next_event_is_known_beforehand() -> None:
    schedule = SensorSchedule({"joints": 100.0, "frames": 30.0})
    told = []
    for _ in range(5):
        due = schedule.next_step
        assert due is not None and list(schedule.until(due - 1)) == []
        told.append((due, *(names for _, names in schedule.until(due))))
    assert told == [(5, ["joints"]), (10, ["joints"]), (15, ["joints"]), (17, ["frames"]), (20, ["joints"])]
    assert SensorSchedule({}).next_step is None


@given(st.floats(0.5, 500.0), st.integers(0, 5000))
def test_rate_is_kept_on_average_and_no_event_is_early(rate: float, steps: int) -> None:
    due = [step for step, _ in SensorSchedule({"frames": rate}).until(steps)]
    assert abs(len(due) - steps * TIMESTEP * rate) <= 1.0 + 1e-6
    for number, step in enumerate(due, start=1):
        delay = step * TIMESTEP - number / rate
        assert -1e-6 <= delay < TIMESTEP


@pytest.mark.parametrize("rate", [0.0, -1.0, 501.0, float("nan")])
def test_impossible_rates(rate: float) -> None:
    with pytest.raises(ValueError, match=r"rate of frames: got .* Hz, expected more than 0, at most 500"):
        SensorSchedule({"frames": rate})
