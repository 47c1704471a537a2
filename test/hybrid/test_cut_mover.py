"""What the controller is told of a result, and what there is to tell of the results."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from vla_simd_ros.hybrid.cut_controller import FrameState
from vla_simd_ros.hybrid.cut_mover import CutMover
from vla_simd_ros.hybrid.frame_pipeline import Drop, FrameResult, FrameTimes, PipelineCounts
from vla_simd_ros.hybrid.hybrid_policy import Answer
from vla_simd_ros.hybrid.machine_state import Loads
from vla_simd_ros.inference import Query, Timing

NO_TIMING = Timing(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Told:
    """In the controller's place: keeps what it is told, and answers with the given cuts."""

    def __init__(self, answers: Iterable[int]) -> None:
        self.blocks = 3
        self.states: list[FrameState] = []
        self.prefixes: list[tuple[int, float, float]] = []
        self._answers = iter(answers)

    def prefix_ended(self, blocks: int, prefix_s: float, load: float) -> None:
        self.prefixes.append((blocks, prefix_s, load))
        self.blocks = next(self._answers)

    def observe(self, state: FrameState) -> int:
        self.states.append(state)
        self.blocks = next(self._answers)
        return self.blocks

    def interval_s(self, blocks: int) -> float:
        return 0.1 * blocks


class Machine:
    def sample(self) -> Loads:
        return Loads(None, 0.25)


def mover(told: Told) -> CutMover:
    return CutMover(told, Machine())  # type: ignore[arg-type]


def result(began: float, ended: float, blocks: int = 3) -> tuple[FrameResult, Answer]:
    times = FrameTimes(began - 0.01, began, began + 0.1, ended - 0.1, ended)
    answer = Answer(Query(np.zeros((1, 1), np.float32), NO_TIMING), blocks, 0.1, 0.2)
    return FrameResult(0, answer, times), answer


def counts(dropped: int) -> PipelineCounts:
    return PipelineCounts(dropped={**dict.fromkeys(Drop, 0), Drop.SUFFIX_BUSY: dropped})


def test_the_cut_is_where_the_controller_wants_it() -> None:
    moved = mover(Told([3, 5, 5]))
    for end in (1.0, 2.0, 3.0):
        moved.frame(*result(end - 0.5, end), counts(0))
    assert (moved.blocks, moved.moves) == (5, 1)
    assert moved.interval_s == pytest.approx(1.0)
    assert moved.predicted_s == pytest.approx(0.5)
    assert moved.latency_s == pytest.approx(0.51)


def test_a_prefix_moves_the_cut_before_its_result_comes() -> None:
    told = Told([5, 5, 4])
    moved = mover(told)
    moved.prefix_ended(3, 0.1)
    ((blocks, took_s, load),) = told.prefixes
    assert (blocks, took_s) == (3, 0.1) and math.isnan(load)
    assert (moved.blocks, moved.moves) == (5, 1)
    moved.frame(*result(0.0, 1.0), counts(0))
    assert (moved.blocks, moved.moves) == (5, 1)
    moved.prefix_ended(5, 0.2)
    assert (moved.blocks, moved.moves) == (4, 2)


def test_loads_and_drops_are_passed_on() -> None:
    told = Told([3, 3])
    moved = mover(told)
    moved.sample()
    moved.frame(*result(0.0, 1.0), counts(2))
    moved.frame(*result(1.0, 2.0), counts(3))
    first, second = told.states
    assert math.isnan(first.prefix_load) and first.suffix_load == 0.25
    assert (first.backlog, second.backlog) == (2, 1)
    assert (first.blocks, first.prefix_s, first.suffix_s) == (3, 0.1, 0.2)


def test_results_that_came_while_a_frame_was_under_way_are_counted() -> None:
    """Frames that begin at 0, 1, 2, ... and take 1.5, 2.5 and so on: their cuts were chosen before those."""
    told = Told([3] * 5)
    moved = mover(told)
    for began, ended in ((0.0, 1.5), (1.0, 2.5), (2.0, 3.5), (2.2, 4.5), (5.0, 6.5)):
        moved.frame(*result(began, ended), counts(0))
    assert [state.delay for state in told.states] == [0, 1, 1, 2, 0]


def test_a_policy_that_is_not_cut_moves_nothing() -> None:
    told = Told([])
    moved = mover(told)
    moved.frame(*result(0.0, 1.0, blocks=0), counts(0))
    assert told.states == []
    assert moved.blocks == 3
