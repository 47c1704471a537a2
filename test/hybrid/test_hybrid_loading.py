"""Zones and costs that fit a policy or do not, and policies made from them that answer as the whole one."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.graph.int8 import INT8
from vla_simd_ros.graph.ir import Op
from vla_simd_ros.hybrid.hybrid_loading import HybridLoader, HybridOptions, plan_zone
from vla_simd_ros.hybrid.placement import PlacementError, Side
from vla_simd_ros.hybrid.split_search import splits
from vla_simd_ros.hybrid.stage_costs import BlockCost, CostError, StageCosts, write_costs
from vla_simd_ros.inference import Policy, make_executor
from vla_simd_ros.tuning.tuned import shape_of, this_machine
from vla_simd_ros.tuning.tuning_file import Tuned, write_tuned

CORES = sorted(os.sched_getaffinity(0))
ONE = ("simd", Side(threads=1))


def costs_of(names: list[str], on_one_side: str = "") -> StageCosts:
    """Blocks that cost the same on both sides, so that the best cut is in the middle."""
    blocks = tuple(
        BlockCost(name, 0.01, math.inf if name == on_one_side else 0.01, 100, 200, 8) for name in names
    )
    return StageCosts(blocks, 0.0, 1e9, source="by hand")


SIX = costs_of(list("abcdef"))
NAMES = tuple("abcde")


def options(folder: Path | None = None, **changes: Any) -> HybridOptions:
    return replace(HybridOptions(str(folder), ONE, ONE), **changes)


@pytest.mark.parametrize(
    ("asked", "first", "last", "cut"),
    [
        ({}, 1, 5, 3),
        ({"cut": 5}, 3, 5, 5),
        ({"zone_first": 4}, 4, 5, 4),
        ({"zone_first": 2, "zone_last": 2}, 2, 2, 2),
        ({"zone_last": 2}, 1, 2, 2),
    ],
)
def test_the_zone_is_what_was_asked_for_or_lies_around_the_best_cut(
    asked: dict[str, int], first: int, last: int, cut: int
) -> None:
    zone = plan_zone(SIX, NAMES, options(**asked))
    assert (zone.first, zone.last, zone.cut) == (first, last, cut)
    assert zone.name(cut) == NAMES[cut - 1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"zone_last": 6}, "zone_last is 6, expected 1 to 5, the blocks of a prefix"),
        ({"zone_first": 4, "zone_last": 2}, "zone_first is 4 and zone_last 2, expected the first not behind"),
        ({"zone_first": 2, "zone_last": 3, "cut": 5}, "cut is 5, expected 2 to 3, the zone"),
        ({"cut": -1}, "cut is -1, expected 1 to 5"),
    ],
)
def test_a_zone_that_cannot_be_is_refused(asked: dict[str, int], words: str) -> None:
    with pytest.raises(CostError, match=words):
        plan_zone(SIX, NAMES, options(**asked))


def test_a_block_that_runs_on_one_side_only_stays_there() -> None:
    with pytest.raises(CostError, match="zone_first is 1 and zone_last 3, but the cut after 1 blocks"):
        plan_zone(costs_of(list("abcdef"), on_one_side="b"), NAMES, options(zone_first=1, zone_last=3))
    with pytest.raises(CostError, match="one block only"):
        plan_zone(SIX, (), options())


def test_a_side_holds_no_more_than_it_may() -> None:
    """By hand: a block is 100 bytes on the first side and 200 on the second."""
    zone = plan_zone(SIX, NAMES, options(prefix_memory=350))
    assert (zone.first, zone.last, zone.cut) == (1, 3, 3)
    zone = plan_zone(SIX, NAMES, options(suffix_memory=500))
    assert (zone.first, zone.last, zone.cut) == (4, 5, 4)
    with pytest.raises(CostError, match="the cut after 4 blocks cannot be: the prefix's memory is limited"):
        plan_zone(SIX, NAMES, options(prefix_memory=350, zone_last=4))
    with pytest.raises(CostError, match=r"prefix_memory is .* MiB, expected at least the 0\.0 MiB that"):
        plan_zone(SIX, NAMES, options(prefix_memory=50))
    with pytest.raises(CostError, match=r"no split is possible: the suffix's .*; the prefix's .*is limited"):
        plan_zone(SIX, NAMES, options(prefix_memory=250, suffix_memory=450))


def test_the_zone_ends_where_a_block_cannot_change_sides() -> None:
    zone = plan_zone(costs_of(list("abcdef"), on_one_side="b"), NAMES, options())
    assert (zone.first, zone.last, zone.cut) == (2, 5, 3)


@pytest.fixture(scope="module", params=["impact", "smolvla", "impact_tokens"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("checkpoint") / request.param
    make_checkpoint(request.param, path, small_options(request.param))
    return path


class Measured:
    """A loader that measured, what it said meanwhile, and the executors that were made."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.made: list[tuple[str, EngineSettings]] = []
        self.loader = HybridLoader(options(folder, repeats=1), CORES, self.make, self.said.append)

    def make(self, name: str, settings: EngineSettings) -> Any:
        self.made.append((name, settings))
        return make_executor(name, settings)


@pytest.fixture(scope="module")
def measured(folder: Path) -> Measured:
    return Measured(folder)


def test_executors_have_the_cores_and_threads_of_their_side(measured: Measured) -> None:
    assert "measuring every block 1 times" in measured.said[0]
    loader = measured.loader
    measured.made.clear()
    loader.hybrid(lambda: loader.zone.cut)
    loader.whole()
    assert [name for name, _ in measured.made] == ["simd"] * 3
    for (_, settings), place in zip(measured.made, (*loader.places, loader.places[1]), strict=True):
        assert (settings.threads, settings.affinity) == (1, place.cpus)


def test_every_cut_of_the_zone_and_the_whole_policy_answer_alike(folder: Path, measured: Measured) -> None:
    loader = measured.loader
    cut = [loader.zone.cut]
    hybrid, whole = loader.hybrid(lambda: cut[0]), loader.whole()
    checkpoint = load_checkpoint(folder)
    expected = Policy.load(folder, threads=1)
    for policy in (hybrid.policy, whole.policy, expected):
        policy.set_instruction("pick up the red cube")
    for policy in (hybrid, whole):
        policy.warm_up()
    for blocks, case in zip(
        range(loader.zone.first, loader.zone.last + 1), random_cases(checkpoint, 9, 5), strict=False
    ):
        cut[0] = blocks
        actions = expected.query(case.observation, noise=case.noise).actions
        given: dict[str, Any] = {} if case.noise is None else {"noise": case.noise}
        crossed = hybrid.prefix(case.observation, **given)
        cut[0] = loader.zone.first  # the next frame's
        answer = hybrid.suffix(crossed)
        assert answer.blocks == blocks
        np.testing.assert_array_equal(answer.query.actions, actions)
        timing = answer.query.timing
        assert timing.query_ms + timing.step_ms == pytest.approx((answer.prefix_s + answer.suffix_s) * 1e3)
        parts = (timing.preprocess_ms, timing.query_ms, timing.handover_ms, timing.step_ms)
        assert sum(parts) + timing.postprocess_ms == pytest.approx(timing.total_ms)
        answer = whole.suffix(whole.prefix(case.observation, **given))
        assert answer.blocks == 0
        np.testing.assert_array_equal(answer.query.actions, actions)


def test_costs_of_a_file_are_those_of_the_policy(folder: Path, measured: Measured, tmp_path: Path) -> None:
    write_costs(measured.loader.costs, tmp_path / "costs.json")
    read = HybridLoader(options(folder, costs=tmp_path / "costs.json"), CORES)
    assert read.costs == measured.loader.costs
    assert read.controller(margin=0.5).blocks == read.zone.cut
    write_costs(SIX, tmp_path / "other.json")
    with pytest.raises(
        CostError, match=r"other\.json: has the costs of the blocks a, b, c, d, e, f; the policy"
    ):
        HybridLoader(options(folder, costs=tmp_path / "other.json"), CORES)
    wider = [replace(block, prefix_bytes=2 * block.prefix_bytes) for block in read.costs.blocks]
    write_costs(replace(read.costs, blocks=tuple(wider)), tmp_path / "wider.json")
    with pytest.raises(CostError, match=r"wider\.json: the blocks have .* the costs of another one"):
        HybridLoader(options(folder, costs=tmp_path / "wider.json"), CORES)


def test_the_zone_is_resident_on_both_sides(measured: Measured) -> None:
    loader = measured.loader
    blocks, zone = loader.costs.blocks, loader.zone
    prefix, suffix = loader.resident_bytes
    assert prefix == blocks[zone.last - 1].prefix_held_bytes > 0
    assert suffix == blocks[zone.first - 1].suffix_held_bytes > 0
    assert prefix + suffix > splits(loader.costs)[0].suffix_bytes


def test_cores_that_cannot_be_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(PlacementError, match=r"prefix_cpus has \[9999\]"):
        HybridLoader(options(Path("nowhere"), prefix=("simd", Side((9999,)))), CORES)


def test_pytorch_on_both_sides_has_one_number_of_threads(folder: Path) -> None:
    sides = {"prefix": ("torch", Side(threads=2)), "suffix": ("torch", Side())}
    with pytest.raises(SettingError, match="prefix_threads is 2 and suffix_threads 3, expected the same"):
        HybridLoader(options(folder, **sides), range(5))


def test_int8_auto_is_what_the_second_sides_engine_is_faster_with(
    folder: Path, measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that make one group pay: it is in int8 on both sides, and so is the policy that is not cut."""
    write_costs(measured.loader.costs, tmp_path / "costs.json")
    timed: list[tuple[int, ...]] = []

    def time_ms(executor: SimdExecutor, op: Op) -> float:
        timed.append(executor.settings.affinity)
        single = "vision" in op.block or "backbone" in op.block
        return 1.0 if (op.attrs.get("precision") == INT8) == single else 2.0

    monkeypatch.setattr(SimdExecutor, "time_ms", time_ms)
    loader = HybridLoader(options(folder, int8="auto", costs=tmp_path / "costs.json"), CORES)
    assert set(timed) == {loader.places[1].cpus}
    assert loader.int8 and all("vision" in name or "backbone" in name for name in loader.int8)
    assert loader.hybrid(lambda: loader.zone.cut).policy.int8 == loader.int8
    assert loader.whole().policy.int8 == loader.int8


def test_tuned_settings_are_those_of_a_side_with_as_many_threads(
    folder: Path, measured: Measured, tmp_path: Path
) -> None:
    write_costs(measured.loader.costs, tmp_path / "costs.json")
    shape = shape_of(load_checkpoint(folder))
    tuned = {"threads": 1, "block_rows": 96, "waiting": "passive"}
    write_tuned(Tuned(shape, this_machine(), tuned, [], int8="all"), tmp_path / "tuned.json")
    made: list[EngineSettings] = []

    def make(name: str, settings: EngineSettings) -> Any:
        made.append(settings)
        return make_executor(name, settings)

    asked = options(
        folder,
        settings=str(tmp_path / "tuned.json"),
        int8="auto",
        engine=EngineSettings(waiting="active", spin_us=7),
        costs=tmp_path / "costs.json",
    )
    loader = HybridLoader(asked, CORES, make)
    assert loader.int8 == ("all",)
    loader.hybrid(lambda: loader.zone.cut)
    for settings, place in zip(made, loader.places, strict=True):
        assert (settings.block_rows, settings.waiting, settings.spin_us) == (96, "passive", 7)
        assert settings.affinity == place.cpus
    write_tuned(
        Tuned(shape, this_machine(), {**tuned, "threads": 2}, [], int8="all"), tmp_path / "tuned.json"
    )
    made.clear()
    HybridLoader(replace(asked, int8=""), CORES, make).whole()
    assert made[-1].block_rows == EngineSettings().block_rows, "measured for two threads"
