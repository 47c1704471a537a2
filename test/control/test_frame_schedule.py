"""Nodes that query on frames: cases with an answer by hand, bounds, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.control.frame_schedule import (
    Draw,
    FrameSchedule,
    in_measured_order,
    predict_supply,
    run_frames,
)
from vla_simd_ros.control.schedule import Schedule, SupplyError, query_steps
from vla_simd_ros.control.starvation import starvation
from vla_simd_ros.control.timeline import Mode

RATE = 30.0


def fixed(seconds: float) -> Draw:
    return lambda rng, count: np.full(count, seconds)


def schedule(window: int = 50, **changes: float) -> FrameSchedule:
    times = {"camera_rate": RATE, "control_rate": RATE, "step_s": 1 / RATE, **changes}
    return FrameSchedule(window=window, **times)


def test_a_query_of_half_a_frame_waits_for_the_next_frame() -> None:
    """One chunk per frame; each is taken over at the tick after its arrival, half a frame old or more."""
    counts = run_frames(fixed(0.5 / RATE), schedule(), Mode.TIME_ALIGNED, 100.0, np.random.default_rng(0))
    assert counts.starved == 0
    assert counts.executed == 3000
    assert counts.chunks == pytest.approx(3000, abs=1)
    assert 0.5 / RATE <= counts.mean_age_s < 1.5 / RATE
    assert counts.busy_s == pytest.approx(50.0, rel=0.01)


def test_a_query_of_a_frame_and_a_half_starts_on_a_frame_that_is_half_a_frame_old() -> None:
    """Free after 1.5 frames: frame 1 is there, half a frame old; free after 3: frame 3 has just come."""
    counts = run_frames(fixed(1.5 / RATE), schedule(), Mode.LAGGED, 300.0, np.random.default_rng(1))
    assert counts.chunks == pytest.approx(9000 / 1.5, abs=2)
    # Delays of 1.5 and 2 frames in turn, executed at the next tick: 1.5 or 2 and less than one tick more.
    assert 1.5 / RATE < counts.mean_first_age_s < 3.0 / RATE


@pytest.mark.parametrize(
    ("window", "mode", "share"),
    [
        # Every 10 frames plus nothing: a query of exactly ten frames arrives as the rows end, or after.
        (10, Mode.LAGGED, 0.0),
        (9, Mode.LAGGED, 0.1),
        (5, Mode.LAGGED, 0.5),
        (25, Mode.TIME_ALIGNED, 0.0),
        (9, Mode.TIME_ALIGNED, 1.0),
    ],
)
def test_shares_of_starved_steps_by_hand(window: int, mode: Mode, share: float) -> None:
    counts = run_frames(fixed(10.0 / RATE), schedule(window), mode, 200.0, np.random.default_rng(2))
    assert counts.starved_share == pytest.approx(share, abs=0.003)
    if share == 1.0:
        assert counts.executed == 0
        assert counts.stale == 9 * counts.chunks
        assert math.isnan(counts.mean_age_s)


def test_where_frames_are_much_faster_than_ticks_and_queries_long_the_exact_model_is_met() -> None:
    """The exact model rounds both of a query's delays up to ticks: little, with 100 ticks to a query."""
    sample = np.random.default_rng(3).uniform(0.8, 1.2, 200)
    exact = starvation(query_steps(sample, Schedule(100.0, 210)), Mode.TIME_ALIGNED)
    found = predict_supply(
        lambda rng, count: rng.choice(sample, count),
        FrameSchedule(camera_rate=1e5, control_rate=100.0, window=210, step_s=0.01),
        Mode.TIME_ALIGNED,
        seconds=600.0,
        runs=50,
    )
    assert found.starved_share.mean == pytest.approx(exact.starved_share, rel=0.15)
    assert found.stale.mean / found.chunks.mean == pytest.approx(exact.stale_rows, rel=0.02)


def test_what_the_exact_model_cannot_say_of_the_nodes() -> None:
    """2 d = 12 rows are enough for queries on ticks; the nodes start on frames up to one frame old."""
    exact = starvation(query_steps([0.19], Schedule(RATE, 12)), Mode.TIME_ALIGNED)
    assert exact.per_chunk == 0.0
    found = predict_supply(fixed(0.19), schedule(12), Mode.TIME_ALIGNED, 60.0)
    # How much depends on how the ticks lie to the frames: none at best.
    assert found.starved.low == 0.0 < found.starved.mean < found.starved.high


def test_longer_runs_have_narrower_intervals() -> None:
    """What is left is how the ticks lie to the frames, which a run does not average out."""
    draw = lambda rng, count: rng.lognormal(math.log(0.18), 0.3, count)  # noqa: E731
    short, long = (predict_supply(draw, schedule(12), Mode.TIME_ALIGNED, s) for s in (20.0, 320.0))
    width = [p.starved_share.high - p.starved_share.low for p in (short, long)]
    assert width[1] < 0.7 * width[0]
    assert short.starved_share.covers(long.starved_share.mean)
    assert not short.starved_share.covers(0.0)


def test_readiness_and_transport_make_rows_older_by_as_much() -> None:
    ages = [
        predict_supply(fixed(0.101), schedule(**late), Mode.LAGGED, 60.0).mean_first_age_s.mean
        for late in ({}, {"ready_s": 0.01}, {"transport_s": 0.02})
    ]
    assert ages[1] - ages[0] == pytest.approx(0.01, abs=0.002)
    assert ages[2] - ages[0] == pytest.approx(0.02, abs=0.002)


def test_measured_order_is_kept_and_goes_round() -> None:
    drawn = in_measured_order([1.0, 2.0, 3.0])(np.random.default_rng(0), 7).tolist()
    start = int(drawn[0])
    assert drawn == [(start - 1 + i) % 3 + 1 for i in range(7)]


@pytest.mark.parametrize("sample", [[], [math.nan], [-1.0]])
def test_a_sample_that_cannot_be_is_refused(sample: list[float]) -> None:
    with pytest.raises(SupplyError, match="expected finite ones"):
        in_measured_order(sample)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"camera_rate": 0.0}, "camera_rate is 0.0, expected above 0"),
        ({"control_rate": math.inf}, "control_rate is inf"),
        ({"step_s": -1.0}, "step_s is -1.0"),
        ({"ready_s": -1.0}, "ready_s is -1.0 s, expected 0 or more"),
        ({"transport_s": math.nan}, "transport_s is nan s"),
        ({"window": 0}, "window is 0 rows, expected at least 1"),
    ],
)
def test_schedules_that_cannot_be_are_refused(changes: dict[str, float], words: str) -> None:
    with pytest.raises(SupplyError, match=words):
        schedule(**changes)  # type: ignore[arg-type]
