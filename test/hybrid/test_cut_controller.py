"""When the cut moves, and when it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.hybrid.cut_controller import ControllerSettings, CutController, FrameState
from vla_simd_ros.hybrid.split_search import predict
from vla_simd_ros.hybrid.stage_costs import BlockCost, CostError, StageCosts

# Each block takes 1 s on either side: half and half is best.
COSTS = StageCosts(tuple(BlockCost(f"b{i}", 1.0, 1.0, 1, 1, 0) for i in range(10)), 0.0, 1.0)
SETTINGS = ControllerSettings(first=3, last=8, margin=0.05)


FINE = StageCosts(tuple(BlockCost(f"b{i}", 0.1, 0.1, 1, 1, 0) for i in range(100)), 0.0, 1.0)


def state(blocks: int, prefix: float = 1.0, suffix: float = 1.0, **others: Any) -> FrameState:
    split = predict(COSTS, blocks)
    return FrameState(blocks, split.prefix_s * prefix, split.suffix_s * suffix, **others)


def fine(blocks: int, prefix: float, suffix: float) -> FrameState:
    split = predict(FINE, blocks)
    return FrameState(blocks, split.prefix_s * prefix, split.suffix_s * suffix)


def test_it_stays_where_it_is_best() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    assert [controller.observe(state(5)) for _ in range(5)] == [5] * 5


def test_at_first_it_takes_two_frames_to_be_sure() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    assert controller.observe(state(5, suffix=2.0)) == 5
    assert controller.observe(state(5, suffix=2.0)) == 7
    assert controller.interval_s(7) == 7.0


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_first_move_takes_no_longer_where_frames_are_under_way(delay: int) -> None:
    """The frames that begin once two slow ones are known are cut elsewhere, and none before."""
    assert run(CutController(COSTS, SETTINGS, 5), [2.0] * 9, delay) == [5] * (2 + delay) + [7] * (7 - delay)


def test_one_slow_frame_moves_nothing() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    assert controller.observe(state(5, suffix=3.0)) == 5
    assert [controller.observe(state(5)) for _ in range(4)] == [5] * 4


def test_once_following_was_of_use_it_follows_at_once() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    for _ in range(10):
        controller.observe(state(controller.blocks, suffix=2.0))
    assert controller.observe(state(7)) == 5
    assert controller.observe(state(5, suffix=2.0)) == 7


def run(controller: CutController, suffixes: Sequence[float], delay: int = 0) -> list[int]:
    """The cuts of frames whose second stage is slower by these factors, each chosen when all but ``delay`` of
    those before are known."""
    cuts = [controller.blocks] * (1 + delay)
    for at, suffix in enumerate(suffixes):
        cuts.append(controller.observe(state(cuts[at], suffix=suffix, delay=min(at, delay))))
    return cuts[: len(suffixes)]


def following() -> CutController:
    """One that has followed a load on the second side, and is where that is best."""
    controller = CutController(COSTS, SETTINGS, 5)
    for _ in range(10):
        controller.observe(state(controller.blocks, suffix=2.0))
    assert controller.blocks == 7
    return controller


def test_a_slow_prefix_moves_the_cut_when_it_ends() -> None:
    controller = following()
    controller.prefix_ended(7, 7.0 * 2.0)
    assert controller.blocks == 5
    assert controller.interval_s(5) == 10.0
    # Its result comes a frame later, and counts the prefix no more.
    assert controller.observe(state(7, prefix=2.0, suffix=2.0, delay=1)) == 5


def test_before_any_result_a_prefix_moves_nothing() -> None:
    controller = CutController(COSTS, SETTINGS, 5)
    controller.prefix_ended(5, 50.0)
    assert controller.blocks == 5
    assert controller.interval_s(5) == 50.0


def test_a_prefix_whose_time_says_nothing_counts_by_its_sides_load() -> None:
    controller = following()
    controller.prefix_ended(7, float("nan"), 0.5)
    assert controller.blocks == 5


def test_frames_that_do_not_overlap_are_cut_as_if_prefixes_were_not_told_of() -> None:
    """Their results come before the next one begins."""
    rng = np.random.default_rng(8)
    loads = np.where(rng.uniform(size=(200, 2)) < 0.2, 3.0, 1.0)
    loads = np.repeat(loads, 3, axis=0)
    told, untold = CutController(COSTS, SETTINGS, 5), CutController(COSTS, SETTINGS, 5)
    cuts = set()
    for prefix, suffix in loads:
        frame = state(told.blocks, prefix=prefix, suffix=suffix)
        told.prefix_ended(frame.blocks, frame.prefix_s)
        assert told.observe(frame) == untold.observe(frame)
        cuts.add(told.blocks)
    assert len(cuts) > 2


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("loads", [[2.0, 1.0], [2.0] * 4 + [1.0] * 4, [1.0, 1.5, 2.5, 1.5, 3.0]])
def test_a_load_that_comes_back_is_met_in_time(loads: list[float], delay: int) -> None:
    """Not one frame too late: every frame has the cut that is best for its own load."""
    cuts = run(CutController(COSTS, SETTINGS, 5), loads * 60, delay)
    best = [min(range(3, 9), key=lambda k: max(float(k), (10 - k) * load)) for load in loads]
    assert cuts[-20 * len(loads) :] == best * 20


def test_where_nothing_can_be_foreseen_the_best_cut_on_the_whole_stays() -> None:
    """Slow or fast by chance: who takes a frame for the next is wrong in every second one. Five blocks take
    10 or 5 s, six 8 or 6, seven 7 or 7.
    """
    loads = [float(load) for load in np.random.default_rng(2).choice([1.0, 2.0], 400)]
    cuts = run(CutController(COSTS, SETTINGS, 5), loads)
    seconds = sum(max(float(cut), (10 - cut) * load) for cut, load in zip(cuts, loads, strict=True))
    assert seconds <= 1.01 * min(
        sum(max(float(cut), (10 - cut) * load) for load in loads) for cut in range(3, 9)
    )
    assert set(cuts[50:]) <= {6, 7}


def test_what_comes_too_late_depends_on_how_many_frames_are_under_way() -> None:
    """Slow for four or five frames in the mean, fast for as many, by chance. At once, following costs one
    frame of each at the other's cut; with three frames under way half of all, and five blocks, the best of
    fast frames, are not worth it.
    """
    rng = np.random.default_rng(6)
    loads = np.resize(np.repeat(np.resize([2.0, 1.0], 300), rng.geometric(1 / 4.5, 300)), 1000).tolist()
    at_once, late = (run(CutController(COSTS, SETTINGS, 5), loads, delay) for delay in (0, 3))
    assert at_once[200:].count(5) > 200
    assert late[200:].count(5) < 80


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
    for _ in range(10):
        calm.observe(state(5, suffix=1.22 + 0.1))
        behind.observe(state(5, suffix=1.22 + 0.1, backlog=1))
    assert calm.blocks == 5
    assert behind.blocks == 6


def test_noisy_stages_ask_for_a_larger_gain() -> None:
    """The second stage takes 5 % longer: a cut one block of a hundred later saves 1 of 105, two 2."""
    for noise, moves in ((0.005, True), (0.05, False)):
        controller = CutController(FINE, ControllerSettings(first=30, last=70, margin=0.015), 50)
        for prefix, suffix in np.random.default_rng(1).normal(1.0, noise, (100, 2)):
            controller.observe(fine(controller.blocks, prefix, suffix))
        assert controller.blocks == 50
        cuts = [controller.observe(fine(controller.blocks, 1.0, 1.05)) for _ in range(12)]
        assert (cuts[-1] > 50) is moves, noise


def test_the_load_tells_where_no_frame_was_computed() -> None:
    alone = replace(SETTINGS, last=10)
    controller = CutController(COSTS, alone, 10)
    assert controller.observe(state(10, suffix_load=0.95)) == 10
    assert controller.interval_s(9) == pytest.approx(max(9.0, 20.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": 9}, "the dynamic zone is 9 to 8 blocks"),
        ({"margin": 1.0}, "margin is 1.0"),
        ({"memory": 0}, "memory is 0 frames"),
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
