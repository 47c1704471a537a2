"""Any history of queries, losses, duplicates, delays, epochs, holds and clock jumps, against a plain model.

The model keeps every chunk and works out each control step from the definitions, without plans or joins.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from vla_simd_ros.control.blending import BLENDINGS, Replace, Splice, blending
from vla_simd_ros.control.chunk import Chunk, ChunkRejected, Rows
from vla_simd_ros.control.timeline import ChunkTimeline, Mode, Step, StepKind

MS = 1_000_000
PERIOD = 100 * MS
START = 10_000 * MS
TOLERANCE = 20 * MS
MAX_AGE = 3_000 * MS
LINEAR_STEPS = 4
COEFFICIENT = 0.3
OLD_WEIGHTS = {"latest_only": 0.0, "weighted_average": 0.3, "average": 0.5, "conservative": 0.7}


@dataclass
class Played:
    """A chunk in the model, the time of its row 0, and the control step that took it over."""

    chunk: Chunk
    origin: int
    taken: int

    def row(self, time: int) -> int:
        return (time - self.origin) // self.chunk.step_ns


class Model:
    """What the timeline should do."""

    def __init__(self, mode: Mode, name: str) -> None:
        self.mode, self.name = mode, name
        self.epoch = 1
        self.jump()

    def jump(self) -> None:
        self.last_row_time = -1
        self.forget_order()

    def forget_order(self) -> None:
        self.sequence = self.stamp = -1
        self.clear()

    def clear(self) -> None:
        self.waiting: list[Chunk] = []
        self.played: list[Played] = []
        self.target: float | None = None

    def accepts(self, chunk: Chunk, now: int) -> bool:
        in_order = (
            chunk.epoch == self.epoch and chunk.sequence > self.sequence and chunk.stamp_ns >= self.stamp
        )
        in_time = 0 < chunk.stamp_ns <= now + TOLERANCE and now - chunk.stamp_ns <= MAX_AGE
        return in_order and in_time

    def add(self, chunk: Chunk, now: int) -> bool:
        """Whether the chunk is taken."""
        if not self.accepts(chunk, now):
            return False
        self.sequence, self.stamp = chunk.sequence, chunk.stamp_ns
        if self.mode is Mode.TIME_ALIGNED and now >= chunk.stamp_ns + chunk.window * chunk.step_ns:
            return False
        self.waiting.append(chunk)
        return True

    def advance(self, time: int) -> tuple[StepKind, float | None]:
        """Kind of the step, and the target where there is one."""
        while self.waiting:
            origin = self.waiting[0].stamp_ns if self.mode is Mode.TIME_ALIGNED else time
            if origin > time:
                break
            taken = Played(self.waiting.pop(0), origin, time)
            if taken.row(time) < taken.chunk.window:
                self.played.append(taken)
        if not self.played:
            return StepKind.WAITING, None
        newest = self.played[-1]
        row = newest.row(time)
        row_time = newest.origin + row * newest.chunk.step_ns
        if row >= newest.chunk.window or (row_time <= self.last_row_time and self.target is None):
            return (StepKind.WAITING if self.target is None else StepKind.STARVED), None
        if row_time <= self.last_row_time:
            return StepKind.KEEP, self.target
        self.last_row_time = row_time
        self.target = self.value(len(self.played) - 1, row)
        return StepKind.ROW, self.target

    def value(self, index: int, row: int) -> float:
        """What the chunks up to this one make of its row."""
        own = float(self.played[index].chunk.rows[row, 0])
        if self.name == "replace" or index == 0:
            return own
        if self.name == "temporal_ensemble":
            values = self.chain(index, row)
            weights = [math.exp(-COEFFICIENT * i) for i in range(len(values))]
            return float(np.dot(weights, values) / sum(weights))
        me, before = self.played[index], self.played[index - 1]
        steps = self.steps(index, row)
        old_row = before.row(me.taken + steps * PERIOD)
        if self.name in OLD_WEIGHTS:
            if old_row >= before.chunk.window:
                return own
            old = self.value(index - 1, old_row)
            return OLD_WEIGHTS[self.name] * old + (1 - OLD_WEIGHTS[self.name]) * own
        if self.name == "real_time" and 0 < me.chunk.frozen >= me.row(me.taken):
            return own
        if steps + 1 >= LINEAR_STEPS:
            return own
        old = self.value(index - 1, min(old_row, before.chunk.window - 1))
        return old + (own - old) * (steps + 1) / LINEAR_STEPS

    def steps(self, index: int, row: int) -> int:
        """Control steps from the one that took the chunk over to the first one that executes the row."""
        me = self.played[index]
        return max(0, math.ceil((me.origin + row * me.chunk.step_ns - me.taken) / PERIOD))

    def chain(self, index: int, row: int) -> list[float]:
        """The rows, oldest first, of the chunks that cover the control step without a gap."""
        own = [float(self.played[index].chunk.rows[row, 0])]
        if index == 0:
            return own
        before = self.played[index - 1]
        old_row = before.row(self.played[index].taken + self.steps(index, row) * PERIOD)
        return own if old_row >= before.chunk.window else self.chain(index - 1, old_row) + own


@dataclass(frozen=True)
class ChunkSpec:
    """A chunk to be: how old its observation is when the query ends, and how long it then travels."""

    age_ms: int
    later_ms: int
    rows: int
    step_ns: int
    old_epoch: int
    frozen: int
    value: float


specs = st.builds(
    ChunkSpec,
    age_ms=st.integers(-25, 700),
    later_ms=st.integers(0, 90),
    rows=st.integers(1, 14),
    step_ns=st.sampled_from([PERIOD, PERIOD, PERIOD // 2, 3 * PERIOD]),
    old_epoch=st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
    frozen=st.integers(0, 4),
    value=st.floats(-100, 100),
)


class Histories(RuleBasedStateMachine):
    """One executor, and a network that does what networks do."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    @initialize(mode=st.sampled_from(list(Mode)))
    def start(self, mode: Mode) -> None:
        self.model = Model(mode, self.name)
        made = blending(self.name, LINEAR_STEPS, COEFFICIENT)
        self.line = ChunkTimeline(mode, PERIOD, made, TOLERANCE, MAX_AGE)
        self.line.start_epoch(1)
        self.grid, self.now = 10_000 * MS, 10_000 * MS
        self.sequence = 0
        self.flying: list[Chunk] = []
        self.executed: list[Step] = []
        self.row_times: list[int] = []

    def fly(self, spec: ChunkSpec) -> Chunk:
        self.sequence += 1
        values = spec.value + np.arange(spec.rows, dtype=np.float64)[:, None]
        stamp, epoch = self.now - spec.age_ms * MS, self.model.epoch - spec.old_epoch
        return Chunk(stamp, self.sequence, epoch, spec.step_ns, values, frozen=spec.frozen)

    def deliver(self, chunk: Chunk, now: int) -> None:
        if self.model.add(chunk, now):
            self.line.add(chunk, now)
        else:
            with pytest.raises(ChunkRejected):
                self.line.add(chunk, now)

    @rule(prompt=st.lists(specs, min_size=1, max_size=3), steps=st.lists(st.integers(1, 3), max_size=8))
    def served(self, prompt: list[ChunkSpec], steps: list[int]) -> None:
        """Chunks that arrive in order, and control steps after each; some control steps are missed."""
        for spec in prompt:
            self.deliver(self.fly(spec), self.now + spec.later_ms * MS)
        for count in steps:
            self.control_step(count)

    @rule(spec=specs)
    def held_up(self, spec: ChunkSpec) -> None:
        """A chunk that may arrive later, more than once, after others, or never."""
        self.flying.append(self.fly(spec))

    @precondition(lambda self: self.flying)
    @rule(pick=st.integers(0, 99), stays=st.booleans(), later_ms=st.integers(0, 90))
    def arrives_after_all(self, pick: int, stays: bool, later_ms: int) -> None:
        pick %= len(self.flying)
        chunk = self.flying[pick] if stays else self.flying.pop(pick)
        self.deliver(chunk, self.now + later_ms * MS)

    @rule(steps=st.lists(st.integers(1, 2), min_size=1, max_size=12))
    def unserved(self, steps: list[int]) -> None:
        for count in steps:
            self.control_step(count)

    def control_step(self, count: int) -> None:
        """The next control step, where the ones before it are missed."""
        self.now += count * PERIOD
        before = self.model.target
        kind, target = self.model.advance(self.now)
        step = self.line.advance(self.now)
        assert step.kind is kind
        if target is None:
            assert step.target is None
            return
        assert step.target is not None
        assert step.target[0] == pytest.approx(target, abs=1e-9)
        if kind is StepKind.ROW:
            self.took_row(step, target, before)

    def took_row(self, step: Step, target: float, before: float | None) -> None:
        newest = self.model.played[-1]
        first = not self.executed or self.executed[-1].sequence != step.sequence
        assert (step.sequence, step.stamp_ns) == (newest.chunk.sequence, newest.chunk.stamp_ns)
        assert newest.chunk.epoch == self.line.epoch
        if first and before is not None:
            assert step.splice == pytest.approx(abs(target - before), abs=1e-9)
        elif not first:
            assert step.splice is None
        self.executed.append(step)
        self.row_times.append(self.model.last_row_time)

    @rule(kind=st.sampled_from(["instruction", "hold", "jump"]), amount=st.integers(-4, 4))
    def disturbed(self, kind: str, amount: int) -> None:
        if kind == "instruction":
            self.model.epoch += abs(amount) + 1
            self.model.forget_order()
            self.line.start_epoch(self.model.epoch)
        elif kind == "hold":
            self.model.clear()
            self.line.clear_rows()
        else:
            self.now += amount * 1_000 * MS + 37 * MS
            self.model.jump()
            self.line.clock_jumped()
            # Sequences may start anew, so a row of before may come again.
            self.row_times.clear()
            self.executed.clear()

    @invariant()
    def no_row_twice_and_time_never_backwards(self) -> None:
        if not hasattr(self, "executed"):
            return
        rows = [(step.sequence, step.row) for step in self.executed]
        assert len(set(rows)) == len(rows)
        assert all(earlier < later for earlier, later in pairwise(self.row_times))
        assert self.line.buffered_steps() >= 0


@pytest.mark.parametrize("name", BLENDINGS)
def test_any_history_is_executed_as_the_model_says(name: str) -> None:
    run_state_machine_as_test(
        lambda: Histories(name),
        settings=settings(
            max_examples=60,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


class Stuck(Replace):
    """A way to blend that stays inside until it is let go."""

    def __init__(self) -> None:
        self.inside, self.let_go = threading.Event(), threading.Event()

    def join(self, splice: Splice) -> Rows:
        self.inside.set()
        assert self.let_go.wait(60)
        return super().join(splice)


CALLS: dict[str, Callable[[ChunkTimeline], object]] = {
    "add": lambda line: line.add(Chunk(START, 3, 1, PERIOD, np.zeros((5, 1))), START),
    "advance": lambda line: line.advance(START + 2 * PERIOD),
    "start_epoch": lambda line: line.start_epoch(2),
    "clear_rows": lambda line: line.clear_rows(),
    "clock_jumped": lambda line: line.clock_jumped(),
    "buffered_steps": lambda line: line.buffered_steps(),
    "committed": lambda line: line.committed(START),
    "ahead": lambda line: line.ahead(),
}


def test_every_method_is_tried() -> None:
    assert set(CALLS) == {name for name, method in vars(ChunkTimeline).items() if is_public(name, method)}


def is_public(name: str, method: object) -> bool:
    return callable(method) and not name.startswith("_")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_waits_while_another_one_is_under_way(name: str) -> None:
    stuck = Stuck()
    line = ChunkTimeline(Mode.TIME_ALIGNED, PERIOD, stuck, TOLERANCE, MAX_AGE)
    line.start_epoch(1)
    for i in (0, 1):
        line.add(Chunk(START, i + 1, 1, PERIOD, np.zeros((5, 1))), START)
        if i == 0:
            line.advance(START)
    first = threading.Thread(target=line.advance, args=(START + PERIOD,))
    second = threading.Thread(target=CALLS[name], args=(line,))
    first.start()
    assert stuck.inside.wait(60)
    second.start()
    second.join(0.02)
    assert second.is_alive()
    stuck.let_go.set()
    for thread in (first, second):
        thread.join(60)
        assert not thread.is_alive()


def test_any_thread_may_call_anything() -> None:
    """Arrivals, control steps, epochs and holds at once: every call finds the timeline whole."""
    line = ChunkTimeline(Mode.LAGGED, PERIOD, blending("average", 1), TOLERANCE, MAX_AGE)
    line.start_epoch(1)
    base, rounds = 10_000 * MS, 3000
    failures: list[BaseException] = []
    steps: list[Step] = []
    proto = Chunk(base, 1, 1, PERIOD, np.arange(20, dtype=np.float64)[:, None])

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    def arrivals() -> None:
        for i in range(1, rounds):
            try:
                line.add(replace(proto, sequence=i, epoch=line.epoch or 1), base)
            except ChunkRejected:
                continue

    def control() -> None:
        for i in range(rounds):
            steps.append(line.advance(base + i * PERIOD))

    def disturbances() -> None:
        for i in range(rounds):
            (line.clear_rows, lambda: line.start_epoch((line.epoch or 0) + 1), line.buffered_steps)[i % 3]()

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=guarded, args=(work,)) for work in (arrivals, control, disturbances)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switching)
    assert not failures
    assert len(steps) == rounds
    rows = [step for step in steps if step.kind is StepKind.ROW]
    assert line.executed_steps == len(rows)
    assert line.starved_steps == sum(step.kind is StepKind.STARVED for step in steps)
