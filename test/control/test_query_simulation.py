"""Just in time against back to back, at equal starvation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from vla_simd_ros.control.query_simulation import QueryCourse, run_queries
from vla_simd_ros.control.query_timing import QueryPacing, QueryTimer
from vla_simd_ros.control.timeline import Mode

PERIOD = 33_333_333
WINDOW = 50
STEPS = 6_000


def course(
    pacing: QueryPacing, latencies: npt.NDArray[np.float64], mode: Mode, threshold: int = 0
) -> QueryCourse:
    timer = QueryTimer(pacing, PERIOD, threshold)
    return run_queries(
        timer, lambda i: int(latencies[i % len(latencies)] * PERIOD), mode, PERIOD, WINDOW, STEPS
    )


SPREADS: dict[str, Callable[[np.random.Generator], npt.NDArray[np.float64]]] = {
    "none": lambda rng: np.ones(4000),
    "normal": lambda rng: 1 + 0.03 * rng.standard_normal(4000),
    "slow now and then": lambda rng: np.where(rng.random(4000) < 0.02, 1.0, 0.8),
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("steps", [2.7, 7.7, 14.7])
@pytest.mark.parametrize("mode", list(Mode))
def test_just_in_time_rests_and_sees_fresher(mode: Mode, steps: float, spread: str) -> None:
    """For latencies under a third of the window."""
    latencies = steps * SPREADS[spread](np.random.default_rng(3))
    back_to_back = course(QueryPacing.CONTINUOUS, latencies, mode)
    late = course(QueryPacing.JUST_IN_TIME, latencies, mode)
    assert back_to_back.starved == late.starved == 0
    assert back_to_back.busy_share == pytest.approx(1.0, rel=0.01)
    assert late.busy_share < 0.6 * back_to_back.busy_share
    # Of each chunk as it takes over. Averaged over all rows, chunks that are used for longer are older.
    assert late.first_age <= back_to_back.first_age
    assert late.mean_age > back_to_back.mean_age


def test_on_demand_rests_too() -> None:
    latencies = np.full(10, 7.7)
    found = course(QueryPacing.ON_DEMAND, latencies, Mode.TIME_ALIGNED, threshold=12)
    assert found.starved == 0 and found.busy_share < 0.25
    assert course(QueryPacing.ON_DEMAND, latencies, Mode.TIME_ALIGNED, threshold=4).starved > 0


def test_numbers_that_can_be_worked_out_by_hand() -> None:
    # Without spread: captured at step 0, there at step 8 of 50; the next one is due at 50 - 8 - 1 - 1.
    found = course(QueryPacing.JUST_IN_TIME, np.full(10, 7.5), Mode.TIME_ALIGNED)
    assert found.first_age == pytest.approx(8.0, abs=0.2)
    assert found.executed == STEPS - 8
    # After the first 50, back to back.
    assert found.queries == pytest.approx(50 + (STEPS - 50 * 7.5) / 40, rel=0.05)


def test_a_machine_that_slows_down_starves_once() -> None:
    latencies = np.concatenate([np.full(100, 6.5), np.full(10_000, 16.5)])
    found = course(QueryPacing.JUST_IN_TIME, latencies, Mode.TIME_ALIGNED)
    assert 0 < found.starved <= 17 - 7
    assert found.queries > 100


def test_a_transport_takes_no_time_of_the_engine() -> None:
    timer = QueryTimer(QueryPacing.CONTINUOUS, PERIOD)
    found = run_queries(timer, lambda _: 2 * PERIOD, Mode.LAGGED, PERIOD, 10, 600, transport_ns=3 * PERIOD)
    assert found.busy_share == pytest.approx(1.0, rel=0.01)
    assert found.first_age == pytest.approx(5.0)
    assert found.starved == 0


def test_a_policy_that_is_too_slow_executes_nothing() -> None:
    found = course(QueryPacing.JUST_IN_TIME, np.full(10, 60.0), Mode.TIME_ALIGNED)
    assert found.executed == 0 and math.isnan(found.first_age) and math.isnan(found.mean_age)
