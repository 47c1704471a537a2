from __future__ import annotations

import pytest

from vla_simd_ros.control.supply_watch import SupplyWatch, Verdict


def judged(watch: SupplyWatch, query_s: float, count: int, added_s: float = 0.0) -> list[tuple[int, Verdict]]:
    """The verdicts on ``count`` chunks alike, with the number of the chunk."""
    said = [(i, watch.chunk(query_s, query_s + added_s)) for i in range(1, count + 1)]
    return [(i, verdict) for i, verdict in said if verdict is not None]


def test_a_policy_that_keeps_up_is_said_to_once() -> None:
    ((number, verdict),) = judged(SupplyWatch(30.0, 50, False), 0.1, 200, added_s=0.05)
    assert number == 5
    assert (verdict.median.delay, verdict.median.c1, verdict.median.c2) == (5, 45, 40)
    assert verdict.holds == (True, True)
    text = str(verdict)
    assert text.startswith("a query takes 100 ms (median of 5), its chunk comes 5 control steps after the ca")
    assert "C1 (d = 5 <= H = 50) holds, C2 (2 d = 10 <= H) holds. Use time_aligned" in text


def test_one_that_is_fast_enough_for_lagged_only() -> None:
    ((_, verdict),) = judged(SupplyWatch(30.0, 50, True), 1.2, 40)
    assert verdict.holds == (True, False)
    assert "C2 (2 d = 72 <= H) fails by 22 steps. Use lagged" in str(verdict)


@pytest.mark.parametrize(
    ("fewer_steps", "advice"),
    [(True, "try fewer solver steps, int8, more threads"), (False, "try int8, more threads or a faster")],
)
def test_one_that_cannot_keep_up_is_said_not_to_at_the_first_chunk(fewer_steps: bool, advice: str) -> None:
    ((number, verdict),) = judged(SupplyWatch(30.0, 50, fewer_steps), 3.0, 64)
    assert number == 1
    assert "C1 (d = 90 <= H = 50) fails by 40 steps, C2 (2 d = 180 <= H) fails by 130 steps" in str(verdict)
    assert "Too slow for 30 Hz: even lagged needs a window of 90 rows" in str(verdict)
    assert advice in str(verdict)


def test_a_slow_chunk_among_fast_ones_counts() -> None:
    watch = SupplyWatch(10.0, 20, False)
    verdicts = [watch.chunk(query_s, query_s) for query_s in (0.2, 0.2, 2.5, 0.2, 0.2)]
    assert verdicts[:4] == [None] * 4
    assert verdicts[4] is not None and verdicts[4].holds == (False, False)
    assert "C1 (d = 2 <= H = 20) holds, but fails by 5 steps for the slowest" in str(verdicts[4])


def test_another_verdict_is_given_when_it_changes() -> None:
    watch = SupplyWatch(10.0, 20, False)
    assert [number for number, _ in judged(watch, 0.5, 5)] == [5]
    slower = [watch.chunk(1.5, 1.5) for _ in range(27)]
    assert slower[:26] == [None] * 26
    assert slower[26] is not None and slower[26].holds == (True, False)
    assert watch.verdict is slower[26]


def test_other_steps_are_judged_anew() -> None:
    watch = SupplyWatch(30.0, 50, True)
    assert len(judged(watch, 3.0, 3)) == 1
    watch.restart()
    assert watch.verdict is None
    ((number, verdict),) = judged(watch, 0.3, 6)
    assert (number, verdict.holds) == (5, (True, True))
