"""What a run of a series came to, from reports made up here."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")

from vla_simd_ros.control.delay_distribution import delay_distribution
from vla_simd_ros.control.latency_budget import STAGES as BUDGET_STAGES
from vla_simd_ros.control.latency_budget import LatencyBudget
from vla_simd_ros.nodes.demo_measured import (
    NodeRates,
    NodeTimes,
    measured,
    node_times,
    predict,
    publish_time,
)
from vla_simd_ros.nodes.demo_recording import STAGES, Budget, Chunk, ExecutorReport, Recording, Timing

MS = 1_000_000
START = 1_700_000_000_000_000_000


def report(i: int, executed: int, sequence: int, age: float, **values: float) -> ExecutorReport:
    counters = {"starved_steps": 0, "stale_rows_dropped": 0, "chunks_received": 0, **values}
    shown = {"executed_row_age_ms": age, "executed_steps": executed, "sequence": sequence, **counters}
    return ExecutorReport(START + i * 100 * MS, "time_aligned", "EXECUTING", shown, {})


@pytest.fixture
def recording() -> Recording:
    """A second: chunks 5 and 6; counters that began before."""
    made = Recording(["pan"], start=START, end=START + 1000 * MS)
    made.executor = [
        report(0, 100, 5, 200.0, starved_steps=3, stale_rows_dropped=40, chunks_received=5),
        report(1, 103, 5, 300.0, starved_steps=3, stale_rows_dropped=40, chunks_received=5),
        report(2, 103, 5, 300.0, starved_steps=5, stale_rows_dropped=40, chunks_received=5),
        report(3, 106, 6, 240.0, starved_steps=6, stale_rows_dropped=52, chunks_received=6),
    ]
    for total_ms in (240.0, 260.0):
        made.budgets.append(Budget(START, 5, LatencyBudget(dict.fromkeys(BUDGET_STAGES, 0.0), total_ms)))
    for i in range(4):
        stages = dict.fromkeys((*STAGES, "episode_ms"), 0.0)
        stages |= {"transport_ms": 4.0, "sync_ms": 1.0, "total_ms": 20.0 + i, "publish_ms": 2.0}
        stages["observation_to_publish_ms"] = 230.0
        stamp = START + 200 * i * MS
        made.timings.append(Timing(stamp, 1, stages))
        made.chunks.append(Chunk(stamp, stamp + 233 * MS, i, 1, "go", 1 / 30, 50, 13))
    return made


def test_counters_are_those_of_the_run_and_ages_of_its_rows(recording: Recording) -> None:
    found = measured(recording, 30.0, cpu_s=0.25)
    assert (found.executed, found.starved, found.stale, found.chunks) == (6, 3, 12, 1)
    assert found.starved_share == pytest.approx(1 / 3)
    assert found.seconds == pytest.approx(0.3)
    # The report of a command that was reported before counts once.
    assert found.mean_age_s == pytest.approx(np.mean([0.2, 0.3, 0.24]))
    assert found.mean_first_age_s == pytest.approx(0.25)
    assert found.cpu_share == pytest.approx(0.25)


def test_where_no_row_was_executed_every_step_starved(recording: Recording) -> None:
    recording.executor = [report(i, 0, 0, math.nan) for i in (0, 10)]
    recording.budgets.clear()
    found = measured(recording, 30.0, 0.0)
    assert (found.executed, found.starved, found.starved_share) == (0, 30, 1.0)
    assert math.isnan(found.mean_age_s) and math.isnan(found.mean_first_age_s)


def test_times_around_the_injected_delay(recording: Recording) -> None:
    times = node_times(recording, publish_s=0.001)
    assert times.queries.tolist() == pytest.approx([0.021, 0.022, 0.023, 0.024])
    assert times.ready == pytest.approx(0.005)
    assert times.transport == pytest.approx(0.003)
    assert publish_time(recording) == pytest.approx(0.002)


def test_the_prediction_is_for_as_many_steps_as_were_measured(recording: Recording) -> None:
    recording.executor[-1].values["executed_steps"] = 100 + 300
    found = measured(recording, 30.0, 0.0)
    times = NodeTimes(np.array([0.02]), ready=0.005, transport=0.003)
    delay = delay_distribution("fixed:400")
    predicted = predict(recording, times, NodeRates(30.0, 30.0), delay, found)
    steps = found.executed + found.starved
    assert predicted.seconds == pytest.approx(steps / 30.0)
    # d = 13 steps at least: all 13 rows are stale, or all but one.
    assert predicted.starved_share.mean > 0.9
    assert predicted.stale.mean / predicted.chunks.mean > 12.0
