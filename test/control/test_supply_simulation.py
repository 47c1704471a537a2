"""The simulated robot, against sequences worked out by hand and the timeline that executes chunks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.control.blending import Replace
from vla_simd_ros.control.chunk import Chunk, ChunkRejected, RejectReason
from vla_simd_ros.control.schedule import Schedule, control_steps, query_steps
from vla_simd_ros.control.starvation import starvation
from vla_simd_ros.control.supply_simulation import simulate
from vla_simd_ros.control.timeline import ChunkTimeline, Mode


def test_back_to_back_without_starvation() -> None:
    # d = 3, H = 8: of each chunk, rows 3 to 5 are executed, at ages of 3 to 5 steps.
    run = simulate([0.3], Schedule(10.0, 8), Mode.TIME_ALIGNED, hours=0.1)
    assert (run.starvations, run.starved_steps, run.executed_steps) == (0, 0, 3600)
    assert (run.low, run.high) == (0.0, pytest.approx(30.0))
    assert run.mean_age_steps == pytest.approx(4.0)
    assert run.stale_rows == 3 * run.chunks
    assert run.busy_share == pytest.approx(1.0, rel=1e-2)


def test_an_interval_leaves_the_processor_idle() -> None:
    run = simulate([0.2], Schedule(10.0, 8, interval=6), Mode.LAGGED, hours=0.1)
    assert run.starved_steps == run.stale_rows == 0
    assert run.busy_share == pytest.approx(1 / 3, rel=1e-2)
    assert run.mean_age_steps == pytest.approx(2 + 2.5)


def test_rows_that_run_out_each_time() -> None:
    # Lagged, d = 5, H = 3: 3 of 5 steps have a row.
    run = simulate([0.5], Schedule(10.0, 3), Mode.LAGGED, hours=0.1)
    assert run.starved_share == pytest.approx(0.4)
    assert run.starvations == pytest.approx(720, abs=1)
    # Time-aligned, each chunk arrives after its end.
    run = simulate([0.5], Schedule(10.0, 3), Mode.TIME_ALIGNED, hours=0.1)
    assert (run.starved_share, run.executed_steps) == (1.0, 0)
    assert math.isnan(run.mean_age_steps)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_timeline_starves_as_often_as_predicted(mode: Mode) -> None:
    """Chunks through the code that executes them, with latencies drawn here."""
    rng = np.random.default_rng(5)
    sample = np.where(rng.random(200) < 0.1, 0.65, 0.25)
    schedule = Schedule(20.0, 14 if mode is Mode.TIME_ALIGNED else 9)
    exact = starvation(query_steps(sample, schedule), mode)
    period, steps = 50_000_000, 40_000
    line = ChunkTimeline(mode, period, Replace(), 0, 10 * steps * period)
    line.start_epoch(1)
    start = sequence = 0
    pending = Chunk(1, 1, 1, period, np.zeros((schedule.window, 1)))
    arrival = 0
    for step in range(steps):
        while arrival == step:
            try:
                line.add(pending, 1 + step * period)
            except ChunkRejected as rejected:
                assert rejected.reason is RejectReason.EXPIRED
            sequence += 1
            delay = int(control_steps(rng.choice(sample), schedule.rate))
            pending = Chunk(1 + step * period, 1 + sequence, 1, period, np.zeros((schedule.window, 1)))
            start, arrival = step, step + delay
        line.advance(1 + step * period)
    assert start > 0
    share = line.starved_steps / (line.starved_steps + line.executed_steps)
    # About 300 slow queries: a tenth is less than two of their standard deviations.
    assert share == pytest.approx(exact.starved_share, rel=0.15)
    assert line.stale_rows / sequence == pytest.approx(exact.stale_rows, rel=0.03, abs=0)
