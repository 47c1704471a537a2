"""When to query, with times given."""

from __future__ import annotations

import pytest

from vla_simd_ros.control.query_timing import Moment, Pacing, QueryPacing, QueryTimer, chosen_pacing

MS = 1_000_000
PERIOD = 100 * MS


def at(capture_ms: int, rows_end_ms: int | None) -> Moment:
    end = None if rows_end_ms is None else rows_end_ms * MS
    return Moment(capture_ms * MS, (capture_ms + 100) * MS, end)


def just_in_time(delays_ms: list[int]) -> QueryTimer:
    timer = QueryTimer(QueryPacing.JUST_IN_TIME, PERIOD)
    for delay in delays_ms:
        timer.arrived(delay * MS)
    return timer


@pytest.mark.parametrize("pacing", list(QueryPacing))
def test_without_rows_every_pacing_queries(pacing: QueryPacing) -> None:
    timer = QueryTimer(pacing, PERIOD)
    for _ in range(100):
        timer.arrived(200 * MS)
    assert timer.due(at(0, None))
    assert timer.due(at(5_000, 4_000)), "they ended long ago"


RECOMMENDED = Pacing(QueryPacing.ON_DEMAND, 4)


@pytest.mark.parametrize(
    ("kind", "threshold", "recommended", "chosen"),
    [
        (None, None, None, Pacing(QueryPacing.CONTINUOUS, 10)),
        (None, None, RECOMMENDED, RECOMMENDED),
        (None, 7, None, Pacing(QueryPacing.ON_DEMAND, 7)),
        (None, 7, RECOMMENDED, Pacing(QueryPacing.ON_DEMAND, 7)),
        (None, 0, Pacing(QueryPacing.JUST_IN_TIME, 4), Pacing(QueryPacing.ON_DEMAND, 0)),
        (QueryPacing.CONTINUOUS, None, RECOMMENDED, Pacing(QueryPacing.CONTINUOUS, 4)),
        (QueryPacing.ON_DEMAND, None, None, Pacing(QueryPacing.ON_DEMAND, 10)),
        (QueryPacing.ON_DEMAND, None, RECOMMENDED, RECOMMENDED),
    ],
)
def test_what_is_asked_for_goes_before_what_is_recommended(
    kind: QueryPacing | None, threshold: int | None, recommended: Pacing | None, chosen: Pacing
) -> None:
    assert chosen_pacing(kind, threshold, recommended) == chosen


def test_continuous_always_queries() -> None:
    assert QueryTimer(QueryPacing.CONTINUOUS, PERIOD).due(at(0, 10**9))


def test_on_demand_queries_below_its_threshold() -> None:
    timer = QueryTimer(QueryPacing.ON_DEMAND, PERIOD, threshold=5)
    assert [timer.due(at(capture, 2_000)) for capture in (1_400, 1_499, 1_500, 1_900)] == [
        False, False, True, True,
    ]  # fmt: skip


def test_just_in_time_waits_while_the_next_observation_is_early_enough() -> None:
    timer = just_in_time([300] * 60)
    # Reserve: 300 ms of delay and one control step. The rows end at 2000 ms.
    assert timer.reserve_ns == 400 * MS
    assert [timer.due(at(capture, 2_000)) for capture in (0, 1_500, 1_501, 1_600)] == [
        False, False, True, True,
    ]  # fmt: skip


def test_it_queries_back_to_back_until_it_knows_enough() -> None:
    timer = just_in_time([300] * 49)
    assert timer.reserve_ns is None
    assert timer.due(at(0, 10**6))
    timer.arrived(300 * MS)
    assert not timer.due(at(0, 10**6))
    timer.forget()
    assert timer.due(at(0, 10**6))


def test_it_adapts_at_the_first_slow_query_and_comes_back() -> None:
    timer = just_in_time([300] * 200 + [700])
    assert timer.reserve_ns == 800 * MS
    for _ in range(511):
        timer.arrived(300 * MS)
    assert timer.reserve_ns == 800 * MS
    timer.arrived(300 * MS)
    assert timer.reserve_ns == 400 * MS


def test_a_negative_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="threshold of -1 control steps"):
        QueryTimer(QueryPacing.ON_DEMAND, PERIOD, -1)
