"""Predictions against the figures of "Efficient Block-Layer Parallel Inference for Vision-Language-Action on
Hybrid Architectures", and against a simulated pipeline."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vla_simd_ros.hybrid.split_search import Resources, best_split, predict, splits
from vla_simd_ros.hybrid.stage_costs import BlockCost, CostError, StageCosts

GIB = 2**30
MS = 1e-3


def orion() -> StageCosts:
    """Vision of 296 ms and 32 blocks of 7 ms on the GPU, 23.4 ms on the CPU: what the printed times come to.

    One gibibyte a block, and 13 of vision and working memory on the GPU, 6 on the CPU. The CPU is saturated
    by a third of its 102 threads.
    """
    vision = BlockCost("vision", 296 * MS, math.inf, 0, 0, 0)
    layers = [BlockCost(f"llm.{i}", 7 * MS, 23.4 * MS, GIB, GIB, 4 << 20) for i in range(32)]
    return StageCosts(
        blocks=(vision, *layers),
        transfer_s=0.41 * MS,
        transfer_rate=math.inf,
        prefix_base_bytes=13 * GIB,
        suffix_base_bytes=6 * GIB,
        suffix_threads=102,
        saturation=1 / 3,
    )


PRINTED_MS = {4: 656.0, 8: 562.0, 16: 408.0, 24: 464.0, 32: 520.0}


@pytest.mark.parametrize(("layers", "printed"), PRINTED_MS.items())
def test_the_intervals_of_table_iii(layers: int, printed: float) -> None:
    assert predict(orion(), 1 + layers).interval_s / MS == pytest.approx(printed, rel=0.03)


def test_the_best_split_of_table_iii() -> None:
    candidates = [split for split in splits(orion()) if split.blocks - 1 in PRINTED_MS]
    assert best_split(candidates).blocks == 1 + 16


def test_serial_and_pipelined_times_of_table_iv() -> None:
    split = predict(orion(), 1 + 16)
    assert split.latency_s / MS == pytest.approx(783, rel=0.03)
    assert split.interval_s / MS == pytest.approx(404, rel=0.03)


def test_memory_of_table_v() -> None:
    whole, half = predict(orion(), 1 + 32), predict(orion(), 1 + 16)
    assert (whole.prefix_bytes // GIB, half.prefix_bytes // GIB) == (45, 29)
    assert whole.suffix_bytes == 0
    assert half.suffix_bytes // GIB == 22


def test_figure_10_is_flat_down_to_40_percent_of_the_threads_and_steep_below_30() -> None:
    def interval(share: float) -> float:
        return predict(orion(), 1 + 16, Resources(suffix_threads=102 * share)).interval_s

    full = interval(1.0)
    assert all(interval(share) < 1.05 * full for share in (0.8, 0.6, 0.4))
    assert full < interval(0.3) < 1.05 * full
    assert interval(0.2) > 1.4 * full
    assert interval(0.1) > 2.5 * full


def test_moving_the_cut_helps_where_threads_are_few() -> None:
    scarce = Resources(suffix_threads=10)
    fixed = predict(orion(), 1 + 16, scarce)
    moved = best_split(splits(orion(), scarce))
    assert moved.blocks > fixed.blocks
    assert moved.interval_s < 0.5 * fixed.interval_s


def test_a_memory_limit_moves_the_cut_to_where_it_fits() -> None:
    limited = Resources(prefix_memory=20 * GIB)
    found = best_split(splits(orion(), limited))
    assert found.blocks == 1 + 7
    assert found.prefix_bytes == 20 * GIB


def test_load_of_others_makes_a_side_slower() -> None:
    split = predict(orion(), 1 + 16, Resources(prefix_load=0.5, suffix_load=0.2))
    assert split.prefix_s == pytest.approx(2 * 408 * MS)
    assert split.suffix_s == pytest.approx(16 * 23.4 * MS / 0.8)


def test_blocks_that_are_fixed_to_a_side_stay_there() -> None:
    found = best_split(splits(orion(), Resources(first=20, last=24)))
    assert found.blocks == 20


def test_what_is_impossible_is_said() -> None:
    with pytest.raises(CostError, match=r"no split is possible: .*cannot run on the suffix's side.*0.0 MiB"):
        best_split(splits(orion(), Resources(prefix_memory=0)))


@pytest.mark.parametrize("load", [-0.1, 1.0, math.nan])
def test_a_load_that_cannot_be_is_refused(load: float) -> None:
    with pytest.raises(CostError, match="suffix_load is"):
        Resources(suffix_load=load)


@pytest.mark.parametrize("blocks", [-1, 34])
def test_a_prefix_that_cannot_be_is_refused(blocks: int) -> None:
    with pytest.raises(CostError, match=f"a prefix of {blocks} blocks, expected 0 to 33"):
        predict(orion(), blocks)


times = st.floats(0.001, 1.0)
block_times = st.lists(st.tuples(times, times), min_size=1, max_size=6)


@given(block_times, st.data())
def test_the_interval_is_that_of_a_simulated_pipeline(
    seconds: list[tuple[float, float]], data: st.DataObject
) -> None:
    blocks = tuple(BlockCost(f"b{i}", g, c, 1, 1, 8) for i, (g, c) in enumerate(seconds))
    costs = StageCosts(blocks, transfer_s=0.002, transfer_rate=1000.0)
    split = predict(costs, data.draw(st.integers(0, len(blocks))))
    first_free = second_free = 0.0
    done = []
    for _ in range(50):
        first_free += split.prefix_s
        second_free = max(first_free, second_free) + split.transfer_s + split.suffix_s
        done.append(second_free)
    assert done[0] == pytest.approx(split.latency_s)
    assert done[-1] - done[-2] == pytest.approx(split.interval_s)


@given(block_times)
def test_no_other_split_has_a_shorter_interval(seconds: list[tuple[float, float]]) -> None:
    blocks = tuple(BlockCost(f"b{i}", g, c, 1, 1, 8) for i, (g, c) in enumerate(seconds))
    candidates = splits(StageCosts(blocks, transfer_s=0.0, transfer_rate=1000.0))
    assert best_split(candidates).interval_s == min(split.interval_s for split in candidates)
