"""A policy on two executors of this machine while somebody else takes a share of one side's cores.

The same phases of load are gone through with the controller and with every fixed cut of the zone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol

from vla_simd_ros.hybrid.cut_mover import CutMover
from vla_simd_ros.hybrid.fed_pipeline import FedPipeline
from vla_simd_ros.hybrid.frame_pipeline import Drop, FrameResult, PipelineError
from vla_simd_ros.hybrid.hybrid_policy import Answer
from vla_simd_ros.hybrid.machine_state import Loads
from vla_simd_ros.hybrid.split_search import Resources, predict
from vla_simd_ros.hybrid.stage_costs import StageCosts
from vla_simd_ros.observation import Observation

SIDES = ("prefix", "suffix")
_TURN_S = 0.01


class LoadTaker(Protocol):
    """Takes a share of a side's cores."""

    def take(self, share: float) -> None: ...


class Stages(Protocol):
    """A policy in two stages, see :class:`vla_simd_ros.hybrid.hybrid_policy.HybridPolicy`."""

    def prefix(self, observation: Observation) -> Any: ...

    def suffix(self, crossed: Any) -> Answer: ...


@dataclass(frozen=True)
class LiveFrame:
    """A result: when it came since the beginning, how it was computed, what load was put on the side and what
    load the machine told of the second side's cores (None: unknown)."""

    at_s: float
    blocks: int
    prefix_s: float
    suffix_s: float
    latency_s: float
    load: float
    seen: float | None


@dataclass(frozen=True)
class LiveRun:
    """Results in order; ``fixed`` is the cut, None where the controller chose. ``dropped``: frames that a
    newer one overtook before the second stage."""

    frames: tuple[LiveFrame, ...]
    fixed: int | None
    dropped: int

    @property
    def moves(self) -> int:
        """How often the cut moved."""
        return sum(a.blocks != b.blocks for a, b in pairwise(self.frames))

    def interval_s(self, load: float | None = None) -> float:
        """Mean seconds from result to result, of those under one load or of all; NaN where there are none."""
        found = [
            later.at_s - earlier.at_s
            for earlier, later in pairwise(self.frames)
            if load is None or (earlier.load == later.load == load)
        ]
        return sum(found) / len(found) if found else float("nan")

    def to_json(self) -> dict[str, Any]:
        return {"fixed": self.fixed, "dropped": self.dropped, "frames": [asdict(f) for f in self.frames]}


@dataclass(frozen=True)
class Schedule:
    """Loads that follow each other, of the ``side``'s cores, each for ``phase_s`` seconds."""

    side: str
    loads: tuple[float, ...]
    phase_s: float

    def resources(self, load: float) -> Resources:
        """What is left of either side under a load."""
        return Resources(prefix_load=load) if self.side == "prefix" else Resources(suffix_load=load)

    @property
    def seconds(self) -> float:
        """All phases together."""
        return len(self.loads) * self.phase_s

    def at(self, seconds: float) -> float:
        """The load at a moment."""
        return self.loads[min(int(seconds / self.phase_s), len(self.loads) - 1)]


def run_live(
    stages: Stages,
    observation: Observation,
    schedule: Schedule,
    taker: LoadTaker,
    mover: CutMover | None,
    fixed: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> LiveRun:
    """Frames as fast as the first stage takes them while the load follows ``schedule``. The cut is moved by
    ``mover``, which the stages look at, or stays at ``fixed``. Raises PipelineError for a stage that fails.
    """
    frames: list[LiveFrame] = []
    failures: list[PipelineError] = []
    failed = threading.Event()
    began = clock()
    loads = Loads(None, None)

    def tell(result: FrameResult) -> None:
        answer: Answer = result.value
        at_s = clock() - began
        load = schedule.at(at_s)
        frames.append(
            LiveFrame(
                at_s, answer.blocks, answer.prefix_s, answer.suffix_s, result.latency_s, load, loads.cpu
            )
        )
        if mover is not None:
            mover.frame(result, answer, pipeline.counts)

    def fail(error: PipelineError) -> None:
        failures.append(error)
        failed.set()

    pipeline = FedPipeline(
        stages.prefix, stages.suffix, observation, on_result=tell, on_failure=fail, clock=clock
    )
    try:
        while not failures and (elapsed := clock() - began) < schedule.seconds:
            taker.take(schedule.at(elapsed))
            if mover is not None:
                mover.sample()
                loads = mover.loads
            failed.wait(_TURN_S)
            pipeline.check()
    finally:
        taker.take(0.0)
        pipeline.close()
    if failures:
        raise failures[0]
    return LiveRun(tuple(frames), fixed, pipeline.counts.dropped[Drop.SUFFIX_BUSY])


def live_table(
    runs: Sequence[LiveRun], schedule: Schedule, costs: StageCosts, zone: Sequence[int]
) -> list[list[str]]:
    """A row for each run: mean interval in milliseconds over all, and under each load beside the formula's,
    which is that of the best cut of the zone where the controller chose."""
    levels = list(dict.fromkeys(schedule.loads))
    rows = [["cut", "interval", *(f"load {level:g} (formula)" for level in levels), "moves"]]
    for run in runs:
        predicted = [
            min(
                predict(costs, blocks, schedule.resources(level)).interval_s
                for blocks in ([run.fixed] if run.fixed is not None else zone)
            )
            for level in levels
        ]
        name = "moved" if run.fixed is None else f"{run.fixed} ({costs.blocks[run.fixed - 1].name})"
        by_load = [
            f"{run.interval_s(level) * 1e3:.1f} ({formula * 1e3:.1f})"
            for level, formula in zip(levels, predicted, strict=True)
        ]
        rows.append([name, f"{run.interval_s() * 1e3:.1f}", *by_load, str(run.moves)])
    return rows
