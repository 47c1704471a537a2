"""Live runs of stages that only let the clock go on, and their table and picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.benchmarks.hybrid_live import LiveFrame, LiveRun, Schedule, live_table, run_live
from vla_simd_ros.benchmarks.hybrid_live_plot import plot_live
from vla_simd_ros.hybrid.cut_controller import ControllerSettings, CutController
from vla_simd_ros.hybrid.cut_mover import CutMover
from vla_simd_ros.hybrid.frame_pipeline import PipelineError
from vla_simd_ros.hybrid.hybrid_policy import Answer
from vla_simd_ros.hybrid.machine_state import Loads
from vla_simd_ros.hybrid.split_search import Resources
from vla_simd_ros.hybrid.stage_costs import BlockCost, StageCosts
from vla_simd_ros.inference import Query, Timing
from vla_simd_ros.observation import Observation

COSTS = StageCosts(tuple(BlockCost(f"layer.{i}", 0.01, 0.01, 1, 1, 0) for i in range(6)), 0.0, 1e9)
SCHEDULE = Schedule("suffix", (0.0, 0.5, 0.0), 1.0)


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Taker:
    def __init__(self) -> None:
        self.shares: list[float] = []

    def take(self, share: float) -> None:
        self.shares.append(share)


class Stages:
    """Stages whose times follow from a cut and from what is taken of the second one."""

    def __init__(self, taker: Taker, blocks: Any, fails: bool = False) -> None:
        self._taker, self._blocks, self._fails = taker, blocks, fails
        self.clock = Clock()

    def prefix(self, observation: Observation) -> int:
        return int(self._blocks())

    def suffix(self, crossed: int) -> Answer:
        if self._fails:
            raise OSError("out of order")
        share = self._taker.shares[-1]
        query = Query(np.zeros((1, 1), np.float32), Timing(0.0, 0.0, 0.0, 0.0, 0.0))
        prefix_s, suffix_s = 0.01 * crossed, 0.01 * (6 - crossed) / (1 - share)
        self.clock.now += max(prefix_s, suffix_s)
        return Answer(query, crossed, prefix_s, suffix_s)


class Machine:
    def sample(self) -> Loads:
        return Loads(None, 0.25)


def test_the_cut_follows_the_load_and_comes_back() -> None:
    taker = Taker()
    mover = CutMover(CutController(COSTS, ControllerSettings(1, 5), 3), Machine())
    stages = Stages(taker, lambda: mover.blocks)
    run = run_live(stages, Observation({}), SCHEDULE, taker, mover, clock=stages.clock)
    assert taker.shares[-1] == 0.0
    assert [share for i, share in enumerate(taker.shares) if i == 0 or share != taker.shares[i - 1]] == [
        0.0,
        0.5,
        0.0,
    ]
    cuts = [frame.blocks for frame in run.frames]
    assert cuts[0] == 3 and max(cuts) > 3 and run.moves >= 1
    assert run.fixed is None
    assert {frame.seen for frame in run.frames[1:]} == {0.25}
    assert [frame.at_s for frame in run.frames] == sorted(frame.at_s for frame in run.frames)


def test_a_fixed_cut_stays() -> None:
    taker = Taker()
    stages = Stages(taker, lambda: 2)
    run = run_live(stages, Observation({}), SCHEDULE, taker, None, 2, stages.clock)
    assert {frame.blocks for frame in run.frames} == {2} and (run.moves, run.fixed) == (0, 2)
    assert {frame.seen for frame in run.frames} == {None}


def test_a_stage_that_fails_ends_the_run_and_the_load() -> None:
    taker = Taker()
    stages = Stages(taker, lambda: 2, fails=True)
    with pytest.raises(PipelineError, match=r"the suffix failed on frame \d+: OSError: out of order"):
        run_live(stages, Observation({}), SCHEDULE, taker, None, 2, stages.clock)
    assert taker.shares[-1] == 0.0


def frames(fixed: int | None, step: float) -> LiveRun:
    """Twice as slow in the middle phase."""
    made, at_s = [], 0.0
    while at_s < SCHEDULE.seconds:
        load = SCHEDULE.at(at_s)
        made.append(LiveFrame(at_s, fixed or 3, 0.03, 0.03, 0.06, load, None if at_s < 0.5 else load))
        at_s += step * (2 if load else 1)
    return LiveRun(tuple(made), fixed, 0)


def test_intervals_are_those_under_one_load() -> None:
    run = frames(2, 0.05)
    assert run.interval_s(0.0) == pytest.approx(0.05)
    assert run.interval_s(0.5) == pytest.approx(0.1)
    assert 0.05 < run.interval_s() < 0.1
    assert math.isnan(run.interval_s(0.7)) and math.isnan(LiveRun((), 2, 0).interval_s())


def test_the_table_has_the_formula_beside() -> None:
    header, moved, fixed = live_table([frames(None, 0.03), frames(2, 0.04)], SCHEDULE, COSTS, range(1, 6))
    assert header == ["cut", "interval", "load 0 (formula)", "load 0.5 (formula)", "moves"]
    # Three blocks each at best; four and two, of which each takes twice as long, under the load.
    assert moved[0] == "moved" and moved[2:] == ["30.0 (30.0)", "60.0 (40.0)", "0"]
    assert fixed == ["2 (layer.1)", fixed[1], "40.0 (40.0)", "80.0 (80.0)", "0"]


@pytest.mark.parametrize(
    ("side", "expected"), [("prefix", Resources(prefix_load=0.5)), ("suffix", Resources(suffix_load=0.5))]
)
def test_a_load_is_of_one_side(side: str, expected: Resources) -> None:
    assert Schedule(side, (0.5,), 1.0).resources(0.5) == expected


@pytest.mark.parametrize("runs", [[frames(None, 0.03), frames(2, 0.04)], [LiveRun((), None, 0)]])
def test_a_picture_is_written(tmp_path: Path, runs: list[LiveRun]) -> None:
    pytest.importorskip("matplotlib")
    cv2 = pytest.importorskip("cv2")
    plot_live(runs, SCHEDULE, "a title", tmp_path / "live.png")
    image = cv2.imread(str(tmp_path / "live.png"))
    assert image is not None and image.shape == (1200, 1200, 3)
    if runs[0].frames:
        shaded = np.array([0xDF, 0xF3, 0xFC])  # BGR of an eighth of orange
        assert (np.abs(image.astype(int) - shaded).sum(axis=2) < 12).any()
