"""Settings of execution, and what cannot be one."""

from __future__ import annotations

import pytest

from vla_simd_ros.control.query_timing import Pacing, QueryPacing
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.evaluation.execution import Delay, Execution, delay
from vla_simd_ros.evaluation.world import EvaluationError


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("0", Delay(), "0 ms"),
        ("150", Delay(150.0), "150 ms"),
        (" 33.5 ", Delay(33.5), "33.5 ms"),
        ("measured", Delay(0.0, True), "measured"),
        ("measured+30", Delay(30.0, True), "measured + 30 ms"),
    ],
)
def test_delays(text: str, expected: Delay, shown: str) -> None:
    assert delay(text) == expected
    assert str(expected) == shown


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "60001", "measured+", "measured-3", "1+2"])
def test_what_is_no_delay(text: str) -> None:
    with pytest.raises(EvaluationError, match="expected milliseconds up to 60000, 'measured' or 'measured"):
        delay(text)


def test_a_measured_delay_adds_to_what_the_query_took() -> None:
    assert Delay(30.0).nanoseconds(12.5) == 30_000_000
    assert Delay(30.0, measured=True).nanoseconds(12.5) == 42_500_000


def test_a_robot_that_waits_executes_late_rows_from_the_first_one() -> None:
    assert Execution("synchronous").timeline_mode is Mode.LAGGED
    assert Execution("time_aligned").timeline_mode is Mode.TIME_ALIGNED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "eager"}, "mode 'eager' is unknown, expected one of lagged, time_aligned, synchronous"),
        ({"horizon": -1}, "horizon is -1 rows"),
        ({"threshold": -1}, "query threshold is -1 steps"),
        ({"mode": "synchronous", "threshold": 3}, "query threshold is 3 steps in synchronous execution"),
        ({"mode": "synchronous", "pacing": QueryPacing.CONTINUOUS}, "query pacing is 'continuous'"),
    ],
)
def test_what_cannot_be_executed(settings: dict[str, object], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        Execution(**settings)  # type: ignore[arg-type]


def test_queries_start_as_is_asked_for_and_else_as_the_checkpoint_says() -> None:
    recommended = Pacing(QueryPacing.ON_DEMAND, 4)
    asked, paced = Execution("lagged", 3), Execution("lagged", 3, 4, pacing=QueryPacing.ON_DEMAND)
    assert asked.paced(recommended) == paced
    assert Execution().paced(None).asked_pacing.kind is QueryPacing.CONTINUOUS
    steady = Execution(pacing=QueryPacing.CONTINUOUS)
    assert steady.paced(recommended) == steady
    assert Execution(threshold=0).paced(recommended).asked_pacing == Pacing(QueryPacing.ON_DEMAND, 0)


def test_a_robot_that_waits_queries_when_no_row_is_left_whatever_is_recommended() -> None:
    waiting = Execution("synchronous")
    assert waiting.paced(Pacing(QueryPacing.ON_DEMAND, 4)) == waiting
    assert waiting.asked_pacing == Pacing(QueryPacing.ON_DEMAND, 0)
