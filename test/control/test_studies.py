"""Delay and horizon studies; the printed tables of vla.cpp from their printed latencies."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from vla_simd_ros.control.schedule import Schedule, SupplyError
from vla_simd_ros.control.studies import DELAYS_MS, blocking, delay_study, horizon_study
from vla_simd_ros.control.timeline import Mode

# Execution horizon, latency in milliseconds, throughput S / L in actions/s (vla.cpp, Fig. 5).
HORIZONS = [
    (1, 358.4, 2.8),
    (2, 352.7, 5.7),
    (4, 356.6, 11.2),
    (8, 391.7, 20.4),
    (16, 447.0, 35.8),
    (32, 456.7, 70.1),
    (50, 457.0, 109.4),
]
# Round trip in milliseconds with S = 25 at 20 Hz, executed actions per second as measured (Table VII).
ROUND_TRIPS = [(111.4, 17.7), (582.0, 12.8), (2164.4, 7.1), (3652.9, 5.0)]


@pytest.mark.parametrize(("horizon", "latency_ms", "throughput"), HORIZONS)
def test_the_throughput_of_the_horizon_sweep(horizon: int, latency_ms: float, throughput: float) -> None:
    assert round(blocking([latency_ms * 1e-3], 20.0, horizon).throughput, 1) == throughput


@pytest.mark.parametrize(("round_trip_ms", "rate"), ROUND_TRIPS)
def test_the_executed_rates_of_the_blocking_robot(round_trip_ms: float, rate: float) -> None:
    """The formula neglects other overhead, so it lies above what was measured, by at most 7 %."""
    found = blocking([round_trip_ms * 1e-3], 20.0, 25)
    assert found.executed_rate == pytest.approx(25 / (round_trip_ms * 1e-3 + 25 / 20))
    assert rate <= found.executed_rate < 1.07 * rate
    assert found.executed_rate == pytest.approx(20.0 * (1 - found.blocked_share))


def test_the_share_of_time_blocked() -> None:
    shares = [blocking([trip * 1e-3], 20.0, 25).blocked_share for trip, _ in ROUND_TRIPS]
    # Printed: from 8 % to 73 %.
    assert (shares[0], shares[-1]) == (pytest.approx(0.08, abs=0.005), pytest.approx(0.73, abs=0.02))


def test_delays_cost_the_waiting_robot_time_and_the_overlapping_one_rows() -> None:
    latencies = np.random.default_rng(2).uniform(0.10, 0.14, 200)
    results = delay_study(latencies, Schedule(30.0, 50), horizon=25, hours=0.5)
    assert [result.delay_s for result in results] == [delay * 1e-3 for delay in DELAYS_MS]
    assert all(one.waiting.blocked_share < two.waiting.blocked_share for one, two in pairwise(results))
    for result in results:
        delay = math.ceil(30 * (result.delay_s + 0.14))
        for mode, found in result.overlapping.items():
            run, predicted = found.simulated, found.predicted
            assert run.low * 0.9 <= predicted.per_hour <= run.high * 1.1
            assert run.starved_share == pytest.approx(predicted.starved_share, abs=0.01)
            # C1 and C2: the delay is part of the query.
            assert (predicted.per_chunk > 0) == (delay > (25 if mode is Mode.TIME_ALIGNED else 50))
    stale = [r.overlapping[Mode.TIME_ALIGNED].predicted.stale_rows for r in results]
    assert stale == sorted(stale) and stale[-1] == 50


def test_horizons_trade_freshness_for_supply() -> None:
    latencies = np.full(50, 0.35)
    results = horizon_study(latencies, Schedule(20.0, 50), (4, 8, 16, 32, 50), hours=0.5)
    ages = [result.waiting.last_age for result in results]
    assert ages == pytest.approx([0.35 + (s - 1) / 20 for s in (4, 8, 16, 32, 50)])
    # d = 7 steps: lagged execution needs 7 rows, time-aligned execution 14.
    starving = {
        mode: [r.horizon for r in results if r.overlapping[mode].predicted.per_chunk > 0] for mode in Mode
    }
    assert starving == {Mode.LAGGED: [4], Mode.TIME_ALIGNED: [4, 8]}
    assert all(r.overlapping[m].simulated.starved_steps == 0 for r in results[2:] for m in Mode)


@pytest.mark.parametrize("horizon", [0, 51])
def test_a_horizon_beyond_the_window_is_refused(horizon: int) -> None:
    with pytest.raises(
        SupplyError, match=f"execution horizon is {horizon} rows, expected 1 to the window, 50"
    ):
        horizon_study([0.1], Schedule(30.0, 50), [horizon])


@pytest.mark.parametrize("delay", [-1.0, math.nan])
def test_a_delay_that_cannot_be_is_refused(delay: float) -> None:
    with pytest.raises(SupplyError, match=f"added delay is {delay} ms"):
        delay_study([0.1], Schedule(30.0, 50), 25, [delay])
