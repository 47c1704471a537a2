from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.benchmarks.consistency import LEAST_PAIRS, Pair, judge

times = st.floats(0.1, 1000.0)
pairs = st.lists(st.builds(Pair, times, times, times, times), min_size=LEAST_PAIRS, max_size=12)


def steady(a: float, b: float, count: int = 6) -> list[Pair]:
    return [Pair(a, b, b, a)] * count


@given(times, st.floats(0.01, 3.0), st.integers(LEAST_PAIRS, 12))
def test_a_steady_difference_without_drift_is_consistent(a: float, more: float, count: int) -> None:
    verdict = judge(steady(a, a * (1 + more), count))
    assert verdict.faster == "A" and verdict.effect == pytest.approx(more)
    assert judge(steady(a * (1 + more), a, count)).faster == "B"


@given(times)
def test_the_same_times_are_no_difference(a: float) -> None:
    verdict = judge(steady(a, a))
    assert (verdict.faster, verdict.effect, verdict.drift) == ("=", 0.0, 0.0)


@given(pairs)
def test_what_is_consistent_is_in_all_but_one_pair_and_beyond_the_drift(measured: list[Pair]) -> None:
    verdict = judge(measured)
    if verdict.faster == "=":
        return
    wins = sum(p.first_b + p.second_b > p.first_a + p.second_a for p in measured)
    wins = (
        wins
        if verdict.faster == "A"
        else sum(p.first_b + p.second_b < p.first_a + p.second_a for p in measured)
    )
    assert wins >= len(measured) - 1
    assert abs(verdict.effect) > verdict.drift
    assert (verdict.effect > 0) == (verdict.faster == "A")


@given(pairs, st.floats(0.01, 100.0))
def test_units_do_not_matter(measured: list[Pair], scale: float) -> None:
    scaled = [
        Pair(p.first_a * scale, p.first_b * scale, p.second_b * scale, p.second_a * scale) for p in measured
    ]
    before, after = judge(measured), judge(scaled)
    assert after.effect == pytest.approx(before.effect, abs=1e-9)
    assert after.drift == pytest.approx(before.drift, abs=1e-9)


@given(pairs)
def test_the_order_of_the_pairs_does_not_matter(measured: list[Pair]) -> None:
    assert judge(measured[::-1]) == judge(measured)


@given(st.integers(LEAST_PAIRS, 12))
def test_one_pair_may_differ_but_not_two(count: int) -> None:
    odd = Pair(2.0, 1.0, 1.0, 2.0)
    assert judge([odd, *steady(1.0, 1.5, count - 1)]).faster == "A"
    assert judge([odd, odd, *steady(1.0, 1.5, count - 2)]).faster == "="


def test_an_effect_within_the_drift_is_no_difference() -> None:
    drifting = [Pair(1.0, 1.15, 1.15, 1.2)] * 6  # A's own times are 20 % apart, B takes 4.5 % longer
    verdict = judge(drifting)
    assert (verdict.pairs_a, verdict.faster) == (6, "=")
    assert judge([replace(pair, second_a=1.01) for pair in drifting]).faster == "A"


def test_a_machine_that_slows_down_steadily_favors_nobody() -> None:
    assert judge([Pair(1.0, 1.1, 1.2, 1.3)] * 6).effect == pytest.approx(0.0)


def test_what_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match=f"expected at least {LEAST_PAIRS}"):
        judge(steady(1.0, 2.0, LEAST_PAIRS - 1))
    with pytest.raises(ValueError, match="expected times that are positive"):
        judge([*steady(1.0, 2.0), Pair(1.0, 0.0, 1.0, 1.0)])
