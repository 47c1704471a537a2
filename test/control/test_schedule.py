"""Latencies as control steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.control.schedule import (
    Schedule,
    SupplyError,
    checked_latencies,
    control_steps,
    query_steps,
)
from vla_simd_ros.control.timeline import Mode


def test_times_are_rounded_up_to_whole_steps_but_not_by_rounding_errors() -> None:
    assert control_steps([0.0, 1e-3, 0.1, 0.1001], 10.0).tolist() == [0, 1, 1, 2]
    for rate in (30.0, 50.0, 7.0):
        exact = np.arange(1, 2000)
        assert control_steps(exact / rate, rate).tolist() == exact.tolist()


def test_each_different_query_has_its_share() -> None:
    queries = query_steps([0.25, 0.25, 0.11, 0.31], Schedule(10.0, 8, interval=3, added_s=0.2))
    assert queries.delay.tolist() == [4, 5, 6]
    assert queries.advance.tolist() == [3, 3, 4]
    assert queries.weight.tolist() == [0.25, 0.5, 0.25]
    assert queries.samples == 4
    assert queries.mean_advance == 3.25
    assert queries.chunks_per_hour == pytest.approx(36000 / 3.25)
    assert queries.carried(Mode.TIME_ALIGNED).tolist() == [3, 3, 4]
    assert queries.carried(Mode.LAGGED).tolist() == [-1, -2, -2]


def test_queries_that_take_no_time_start_one_step_apart() -> None:
    assert query_steps([0.0], Schedule(10.0, 1)).advance.tolist() == [1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 10), "control rate is 0.0"),
        ((math.inf, 10), "control rate is inf"),
        ((30.0, 0), "window is 0 rows"),
        ((30.0, 10, -1), "query interval is -1"),
        ((30.0, 10, 0, math.nan), "added delay is nan s"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(arguments: tuple[float, ...], words: str) -> None:
    with pytest.raises(SupplyError, match=words):
        Schedule(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sample", "words"),
    [([], "is empty"), ([0.1, -0.1], "latency 2 of the sample is -0.1 s"), ([math.nan], "latency 1 .* nan")],
)
def test_a_sample_that_cannot_be_is_refused(sample: list[float], words: str) -> None:
    with pytest.raises(SupplyError, match=words):
        checked_latencies(sample)
