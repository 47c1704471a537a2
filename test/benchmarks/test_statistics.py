from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.benchmarks.statistics import bootstrap_median, compare, summarize

times = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=50)


def test_summary_of_known_times() -> None:
    summary = summarize([float(ms) for ms in range(101)])
    assert (summary.median_ms, summary.p95_ms, summary.p99_ms, summary.n) == (50.0, 95.0, 99.0, 101)


def test_quantiles_are_interpolated() -> None:
    summary = summarize([10.0, 20.0])
    assert summary.median_ms == 15.0
    assert summary.p95_ms == pytest.approx(19.5)
    assert summary.p99_ms == pytest.approx(19.9)


@given(times)
def test_summary_is_ordered_and_within_the_times(values: list[float]) -> None:
    summary = summarize(values)
    slack = 1e-9 * max(values)
    assert min(values) - slack <= summary.median_ms <= summary.p95_ms + slack
    assert summary.p95_ms <= summary.p99_ms + slack <= max(values) + 2 * slack


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [-1.0]])
def test_impossible_times_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        summarize(values)


def test_comparison_is_the_median_ratio_within_blocks() -> None:
    slow = [[30.0, 30.0], [44.0, 40.0], [9.0, 11.0]]
    fast = [[10.0, 10.0], [21.0, 21.0], [10.0, 10.0]]
    result = compare(slow, fast)
    assert result.ratio == 2.0
    assert (result.blocks_above_one, result.blocks) == (2, 3)
    assert result.low == 1.0 and result.high == 3.0


def test_drift_between_blocks_cancels() -> None:
    drift = [1.0, 1.5, 4.0]
    result = compare([[20.0 * d] for d in drift], [[10.0 * d] for d in drift])
    assert (result.ratio, result.low, result.high) == (2.0, 2.0, 2.0)


@given(st.lists(times, min_size=1, max_size=8))
def test_a_runner_against_itself_is_level(blocks: list[list[float]]) -> None:
    result = compare(blocks, blocks)
    assert (result.ratio, result.low, result.high, result.blocks_above_one) == (1.0, 1.0, 1.0, 0)


def test_blocks_must_match() -> None:
    with pytest.raises(ValueError, match="got 1 blocks against 2"):
        compare([[1.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="at least one"):
        compare([], [])


def test_bootstrap_covers_the_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    intervals = [bootstrap_median(rng.normal(5.0, 1.0, 25)) for _ in range(100)]
    assert 88 <= sum(low <= 5.0 <= high for low, high in intervals) <= 100


def test_bootstrap_repeats_itself() -> None:
    values = [1.0, 2.0, 3.0, 5.0, 8.0]
    assert bootstrap_median(values) == bootstrap_median(values)


def test_bootstrap_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_median([])
