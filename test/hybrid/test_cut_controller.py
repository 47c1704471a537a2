"""When the cut moves, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vla_simd_ros.hybrid.cut_controller import ControllerSettings, CutController, FrameState
from vla_simd_ros.hybrid.split_search import predict
from vla_simd_ros.hybrid.stage_costs import BlockCost, CostError, StageCosts

# Each block takes 1 s on either side: half and half is best.
COSTS = StageCosts(tuple(BlockCost(f"b{i}", 1.0, 1.0, 1, 1, 0) for i in range(10)), 0.0, 1.0)
SETTINGS = ControllerSettings(first=3, last=8, margin=0.05, patience=2, rest=3, smoothing=1.0)


def state(blocks: int, prefix: float = 1.0, suffix: float = 1.0, **others: Any) -> FrameState:
    split = predict(COSTS, blocks)
    return FrameState(blocks, split.prefix_s * prefix, split.suffix_s * suffix, **others)


def test_it_stays_where_it_is_best() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    assert [controller.observe(state(5)) for _ in range(5)] == [5] * 5


def test_it_moves_after_as_many_frames_as_it_takes_to_be_sure() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    assert controller.observe(state(5, suffix=2.0)) == 5
    assert controller.observe(state(5, suffix=2.0)) == 7
    assert controller.interval_s(7) == 7.0


def test_one_slow_frame_moves_nothing() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    assert controller.observe(state(5, suffix=3.0)) == 5
    assert [controller.observe(state(5)) for _ in range(4)] == [5] * 4


def test_it_rests_after_a_move() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    for _ in range(2):
        controller.observe(state(5, suffix=2.0))
    assert [controller.observe(state(7)) for _ in range(4)] == [7, 7, 7, 5]


def test_it_does_not_leave_its_zone() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    for _ in range(20):
        controller.observe(state(controller.blocks, suffix=50.0))
    assert controller.blocks == 8
    for _ in range(20):
        controller.observe(state(controller.blocks, prefix=50.0))
    assert controller.blocks == 3


def test_a_small_gain_is_not_worth_a_move_unless_frames_are_dropped() -> None:
    patient = replace(SETTINGS, margin=0.2)
    calm, behind = CutController(COSTS, patient, 5), CutController(COSTS, patient, 5)
    for _ in range(5):
        calm.observe(state(5, suffix=1.2))
        behind.observe(state(5, suffix=1.2, backlog=1))
    assert calm.blocks == 5
    assert behind.blocks == 5  # one block more takes as long on the other side
    for _ in range(5):
        calm.observe(state(5, suffix=1.22 + 0.1))
        behind.observe(state(5, suffix=1.22 + 0.1, backlog=1))
    assert calm.blocks == 5
    assert behind.blocks == 6


def test_the_load_tells_where_no_frame_was_computed() -> None:
    alone = replace(SETTINGS, last=10)
    controller = CutController(COSTS, alone, 10)
    assert controller.observe(state(10, suffix_load=0.9)) == 10
    assert controller.interval_s(9) == pytest.approx(max(9.0, 10.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": 9}, "the dynamic zone is 9 to 8 blocks"),
        ({"margin": 1.0}, "margin is 1.0"),
        ({"patience": 0}, "patience is 0"),
        ({"smoothing": 0.0}, "smoothing is 0.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CostError, match=message):
        replace(SETTINGS, **change)


@pytest.mark.parametrize("blocks", [2, 9])
def test_a_start_outside_the_zone_is_refused(blocks: int) -> None:
    with pytest.raises(CostError, match=f"the cut is after {blocks} blocks of 10, expected 3 to 8"):
        CutController(COSTS, SETTINGS, blocks)


def test_a_zone_with_a_block_on_the_wrong_side_is_refused() -> None:
    costs = replace(COSTS, blocks=(*COSTS.blocks[:9], replace(COSTS.blocks[9], prefix_s=float("inf"))))
    with pytest.raises(CostError, match="a prefix of 10 blocks has a block that cannot run"):
        CutController(costs, replace(SETTINGS, last=10), 5)
