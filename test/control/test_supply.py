"""Action-supply arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.control.supply import (
    SupplyMonitor,
    c1_margin,
    c2_margin,
    delay_steps,
    starvation_probability,
    supply_rate,
)
from vla_simd_ros.control.timeline import Mode

MS = 1_000_000
PERIOD = 100 * MS


@pytest.mark.parametrize(("delay_ms", "steps"), [(0, 0), (1, 1), (100, 1), (101, 2), (250, 3)])
def test_a_delay_is_rounded_up_to_whole_steps(delay_ms: int, steps: int) -> None:
    assert delay_steps(delay_ms * MS, PERIOD) == steps


@pytest.mark.parametrize(
    ("query_s", "rows", "c1", "c2"),
    [
        (0.92, 100, True, True),  # ACT on a Raspberry Pi 5
        (1.28, 12, False, False),  # TurboVLA there
        (1.21, 50, True, False),  # IMPACT there in fp32
        (0.51, 4, False, False),  # Octo-Small there
    ],
)
def test_the_conditions_match_the_published_table_at_30_hz(
    query_s: float, rows: int, c1: bool, c2: bool
) -> None:
    d = delay_steps(round(query_s * 1e9), round(1e9 / 30))
    assert (c1_margin(rows, d) >= 0) is c1
    assert (c2_margin(rows, d) >= 0) is c2


def test_the_supply_rate_is_rows_per_query_time() -> None:
    assert supply_rate(50, 1.25) == 40.0
    assert math.isnan(supply_rate(50, 0.0))


def test_starvation_is_impossible_with_a_long_window_and_certain_with_a_short_one() -> None:
    delays, intervals = np.full(5, 0.3), np.full(5, 0.3)
    for mode in Mode:
        assert starvation_probability(delays, intervals, 1.0, mode) == 0.0
        assert starvation_probability(delays, intervals, 0.2, mode) == 1.0
    assert starvation_probability(delays, intervals, 0.5, Mode.LAGGED) == 0.0
    assert starvation_probability(delays, intervals, 0.5, Mode.TIME_ALIGNED) == 1.0


def test_starvation_pairs_every_delay_with_every_interval() -> None:
    rng = np.random.default_rng(3)
    delays, intervals = rng.uniform(0.1, 0.5, 40), rng.uniform(0.1, 0.5, 30)
    sums = delays[:, None] + intervals[None, :]
    expected = float(np.mean(sums > 0.6))
    assert starvation_probability(delays, intervals, 0.6, Mode.TIME_ALIGNED) == pytest.approx(expected)
    expected = float(np.mean(intervals > 0.4))
    assert starvation_probability(delays, intervals, 0.4, Mode.LAGGED) == pytest.approx(expected)


def test_without_samples_nothing_is_known() -> None:
    report = SupplyMonitor(PERIOD).report(Mode.LAGGED)
    assert all(math.isnan(value) for value in vars(report).values())
    assert math.isnan(starvation_probability(np.array([0.1]), np.array([]), 1.0, Mode.LAGGED))


def test_the_report_is_in_control_steps() -> None:
    monitor = SupplyMonitor(PERIOD)
    for i, delay_ms in enumerate([210, 220, 230, 240, 990]):
        now = i * 300 * MS + 1000 * MS
        monitor.arrived(now - delay_ms * MS, now, rows=8, step_ns=2 * PERIOD, query_ms=200.0)
    report = monitor.report(Mode.TIME_ALIGNED)
    assert (report.delay_median, report.delay_p95, report.delay_p99) == (3, 10, 10)
    assert report.interval_median == 3.0
    assert (report.c1, report.c2, report.c1_p99, report.c2_p99) == (13, 10, 6, -4)
    assert report.rate == pytest.approx(40.0)
    assert report.starvation == 0.0


def test_an_interruption_is_not_an_interval() -> None:
    monitor = SupplyMonitor(PERIOD)
    monitor.arrived(0, 100 * MS, 5, PERIOD, float("nan"))
    monitor.interrupted()
    monitor.arrived(60_000 * MS, 60_100 * MS, 5, PERIOD, float("nan"))
    report = monitor.report(Mode.LAGGED)
    assert math.isnan(report.interval_median) and math.isnan(report.rate)
    assert report.delay_median == 1.0
