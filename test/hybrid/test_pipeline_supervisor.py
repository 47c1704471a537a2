"""Stages that raise, stall and die at every moment of a frame's way, under a clock that the test turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from held_stages import PATIENCE_S, Clock
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.hybrid.frame_pipeline import Drop, FrameResult, UnusableFrame
from vla_simd_ros.hybrid.pipeline_supervisor import Mode, PipelineSupervisor, RestartSettings

SETTINGS = RestartSettings(stall_s=5.0, limit=2, pause_s=0.5, longest_pause_s=4.0, forgiven=3)
# What stages are waited for when they are to end; the clock of the test has nothing to do with it.
IMPATIENT = RestartSettings(stall_s=0.05, limit=2, pause_s=0.5, longest_pause_s=4.0, forgiven=3)


class Died(BaseException):
    """What no stage expects."""


class Scripted:
    """Two stages of which every call does what its name in ``faults`` says.

    That is nothing, "raise", "die", "skip", or "stall" until it is cancelled ("stuck": for longer than that).
    """

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name
        self.cancelled = threading.Event()
        self.instructions: list[str] = []
        self.closed = False

    def prefix(self, value: Any) -> Any:
        self._act("prefix")
        return (value, self.name)

    def suffix(self, value: Any) -> Any:
        self._act("suffix")
        assert self.instructions, "no frame comes before the instruction"
        return (*value, self.instructions[-1])

    def _act(self, stage: str) -> None:
        if self.cancelled.is_set():
            raise RuntimeError("cancelled")
        fault = self.bench.next_fault(stage)
        if fault == "raise":
            raise RuntimeError("no memory left")
        if fault == "die":
            raise Died
        if fault == "skip":
            raise UnusableFrame("dark")
        if fault == "stall":
            self.bench.entered(stage)
            assert self.cancelled.wait(PATIENCE_S)
        if fault == "stuck":
            self.bench.entered(stage)
            assert self.bench.released.wait(PATIENCE_S)

    def cancel(self) -> None:
        self.cancelled.set()

    def resume(self) -> None:
        self.cancelled.clear()

    def close(self) -> None:
        self.closed = True


class Bench:
    """A supervisor of scripted stages; those made first, later, and for the fallback are called apart."""

    def __init__(self, restarts: RestartSettings = SETTINGS) -> None:
        self.clock = Clock()
        self.faults: dict[str, list[str]] = {"prefix": [], "suffix": []}
        self.made: list[Scripted] = []
        self.unmakeable: list[str] = []
        self.released = threading.Event()
        self.results: list[FrameResult] = []
        self.drops: list[tuple[int, Drop]] = []
        self.failures: list[str] = []
        self._changed = threading.Condition()
        self._entered: list[str] = []
        self.supervisor = PipelineSupervisor(
            self.make("first"),
            lambda: self.make("pipeline"),
            lambda: self.make("fallback"),
            restarts,
            on_result=lambda result: self._tell(self.results, result),
            on_drop=lambda number, reason: self._tell(self.drops, (number, reason)),
            on_failure=lambda text: self._tell(self.failures, text),
            clock=self.clock,
        )

    def make(self, name: str) -> Scripted:
        if name in self.unmakeable:
            raise MemoryError(f"no {name}")
        self.made.append(Scripted(self, f"{name} {len(self.made)}"))
        return self.made[-1]

    def next_fault(self, stage: str) -> str:
        with self._changed:
            return self.faults[stage].pop(0) if self.faults[stage] else ""

    def entered(self, stage: str) -> None:
        self._tell(self._entered, stage)

    def wait_entered(self, stage: str) -> None:
        self.wait(lambda: stage in self._entered, f"the {stage} to be in its fault")

    def _tell(self, what: list[Any], value: Any) -> None:
        with self._changed:
            what.append(value)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S), f"waited in vain for {what}"

    def run(self, instruction: str = "go") -> None:
        self.supervisor.run(lambda stages: stages.instructions.append(instruction))

    def frame(self) -> None:
        """Hand in a frame and wait for its result or its drop."""
        settled = len(self.results) + len(self.drops)
        self.supervisor.submit(f"frame {self.supervisor.counts.submitted}")
        self.wait(lambda: len(self.results) + len(self.drops) > settled, "a frame's end")

    def fail(self) -> None:
        """Hand in a frame that a stage raises at."""
        told = len(self.failures)
        self.faults["suffix"].insert(0, "raise")
        self.frame()
        self.wait(lambda: len(self.failures) > told, "a failure")

    def later(self, seconds: float) -> None:
        self.clock.now += seconds
        self.supervisor.check()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.released.set()
    assert made.supervisor.close(PATIENCE_S)


def test_frames_go_through_once_the_stages_are_ready(bench: Bench) -> None:
    bench.supervisor.submit("too early")
    assert bench.supervisor.refuse() == 1
    assert bench.drops == [(0, Drop.NO_PIPELINE), (1, Drop.NO_PIPELINE)]
    assert not bench.supervisor.waiting
    bench.run("wave")
    bench.frame()
    (result,) = bench.results
    assert (result.number, result.value) == (2, ("frame 2", "first 0", "wave"))
    assert bench.supervisor.mode is Mode.PIPELINE
    assert bench.supervisor.reason == ""


@pytest.mark.parametrize("stage", ["prefix", "suffix"])
@pytest.mark.parametrize(("fault", "words"), [("raise", "no memory left"), ("die", "Died")])
def test_a_stage_that_raises_or_dies_is_started_again_after_a_pause(
    bench: Bench, stage: str, fault: str, words: str
) -> None:
    bench.run()
    bench.faults[stage] = [fault]
    bench.frame()
    bench.wait(lambda: bool(bench.failures), "the failure")
    assert bench.failures == [f"the {stage} failed on frame 0: {words}"]
    assert bench.supervisor.waiting
    bench.frame()
    bench.later(0.4)
    bench.frame()
    assert bench.drops == [(0, Drop.FAILED), (1, Drop.NO_PIPELINE), (2, Drop.NO_PIPELINE)]
    bench.later(0.2)
    bench.frame()
    # The same stages, which have come to rest, with the same instruction.
    assert bench.results[0].value == ("frame 3", "first 0", "go")
    assert bench.supervisor.restarts == 1
    assert not bench.supervisor.waiting
    assert bench.supervisor.reason == bench.failures[0]


@pytest.mark.parametrize("stage", ["prefix", "suffix"])
def test_a_stage_that_stalls_is_cancelled_and_its_result_counts_no_more(bench: Bench, stage: str) -> None:
    bench.run()
    bench.faults[stage] = ["stall"]
    bench.supervisor.submit("frame 0")
    bench.wait_entered(stage)
    bench.later(4.9)
    assert not bench.failures
    bench.later(0.2)
    (failure,) = bench.failures
    assert failure.startswith(f"the {stage} stalled on frame 0: 5.1")
    assert bench.drops == [(0, Drop.FAILED)]
    bench.later(0.6)
    bench.frame()
    assert [result.number for result in bench.results] == [1]


def left_to_a_stuck(stage: str) -> Bench:
    """The first pipeline's ``stage`` is stuck, and a second pipeline has answered a frame since."""
    bench = Bench(IMPATIENT)
    bench.run()
    bench.faults[stage] = ["stuck"]
    bench.supervisor.submit("frame 0")
    bench.wait_entered(stage)
    bench.later(0.1)
    bench.later(0.6)
    bench.frame()
    return bench


@pytest.mark.parametrize("stage", ["prefix", "suffix"])
def test_a_stage_that_is_stuck_is_left_and_others_are_made(stage: str) -> None:
    bench = left_to_a_stuck(stage)
    assert bench.results[0].value == ("frame 1", "pipeline 1", "go")
    assert not bench.made[0].closed, "its thread still uses it"
    # It comes back in the end, and nobody wants what it has.
    assert not bench.supervisor.close(PATIENCE_S)
    bench.released.set()
    bench.frame()
    assert [result.number for result in bench.results] == [1]


@pytest.mark.parametrize("stage", ["prefix", "suffix"])
def test_what_was_left_to_a_stuck_stage_is_freed_when_it_comes_back(stage: str) -> None:
    bench = left_to_a_stuck(stage)
    assert not bench.made[0].closed
    bench.released.set()
    until = time.monotonic() + PATIENCE_S
    while not bench.made[0].closed and time.monotonic() < until:
        bench.supervisor.check()
        time.sleep(0.001)
    assert bench.made[0].closed and not bench.made[1].closed
    bench.frame()
    assert [result.value[1] for result in bench.results] == ["pipeline 1"] * 2
    assert bench.supervisor.close(PATIENCE_S)


def test_failures_in_a_row_lead_to_others_and_to_the_fallback_with_longer_pauses(bench: Bench) -> None:
    bench.run()
    bench.fail()
    bench.later(0.5)
    assert bench.supervisor.stages is bench.made[0]
    bench.fail()
    bench.later(0.9)
    assert bench.supervisor.waiting, "the second pause is twice as long"
    bench.later(0.1)
    assert bench.made[0].closed
    bench.frame()
    assert bench.results[-1].value[1] == "pipeline 1"
    bench.fail()
    assert bench.supervisor.mode is Mode.FALLBACK
    bench.later(0.0)
    assert bench.made[1].closed
    bench.frame()
    assert bench.results[-1].value == ("frame 4", "fallback 2", "go")
    numbers = [result.number for result in bench.results]
    assert numbers == sorted(set(numbers))


def test_results_in_a_row_make_up_for_failures(bench: Bench) -> None:
    bench.run()
    for _ in range(4):
        bench.fail()
        bench.later(0.5)
        for _ in range(SETTINGS.forgiven):
            bench.frame()
    assert bench.supervisor.mode is Mode.PIPELINE
    assert len(bench.made) == 1
    assert bench.supervisor.restarts == 4


def test_a_fallback_that_fails_as_often_is_the_end(bench: Bench) -> None:
    bench.run()
    for _ in range(6):
        assert bench.supervisor.mode is not Mode.STOPPED
        bench.fail()
        bench.later(4.0)
    assert bench.supervisor.mode is Mode.STOPPED
    assert "nothing is computed any more" in bench.failures[-1]
    made = len(bench.made)
    bench.run()
    bench.later(100.0)
    bench.frame()
    assert bench.drops[-1][1] is Drop.NO_PIPELINE
    assert len(bench.made) == made
    assert not bench.supervisor.waiting


def test_stages_that_cannot_be_made_are_failures_too(bench: Bench) -> None:
    bench.unmakeable = ["pipeline"]
    bench.run()
    bench.fail()
    bench.later(0.5)
    bench.fail()
    bench.later(1.0)
    assert bench.failures[-1] == "the pipeline cannot be made: no pipeline"
    assert bench.supervisor.mode is Mode.FALLBACK
    bench.later(0.0)
    bench.frame()
    assert bench.results[-1].value[1].startswith("fallback")


def test_a_fallback_that_is_stuck_is_the_end() -> None:
    bench = Bench(IMPATIENT)
    bench.run()
    for _ in range(3):
        bench.fail()
        bench.later(2.0)
    assert bench.supervisor.mode is Mode.FALLBACK
    bench.faults["suffix"] = ["stuck"]
    bench.supervisor.submit("frame")
    bench.wait_entered("suffix")
    bench.later(0.1)
    bench.later(2.0)
    assert bench.supervisor.mode is Mode.STOPPED
    bench.released.set()


def test_an_instruction_that_cannot_be_is_the_callers_and_no_failure(bench: Bench) -> None:
    def refuse(stages: Any) -> None:
        raise ValueError("no words")

    with pytest.raises(ValueError, match="no words"):
        bench.supervisor.run(refuse)
    assert not bench.failures
    assert not bench.supervisor.waiting
    bench.frame()
    assert bench.drops == [(0, Drop.NO_PIPELINE)]
    bench.run()
    bench.frame()
    assert len(bench.results) == 1


def test_stages_that_break_when_they_are_readied_are_started_again(bench: Bench) -> None:
    broken = [True]

    def prepare(stages: Any) -> None:
        if broken.pop() if broken else False:
            raise RuntimeError("the device is lost")
        stages.instructions.append("go")

    bench.supervisor.run(prepare)
    assert bench.failures == ["the pipeline cannot be readied: the device is lost"]
    bench.later(0.5)
    bench.frame()
    assert len(bench.results) == 1


@pytest.mark.parametrize("stage", ["prefix", "suffix"])
def test_a_pause_drops_what_is_under_way_and_waits_for_no_stage(bench: Bench, stage: str) -> None:
    bench.run("wave")
    bench.faults[stage] = ["stall"]
    bench.supervisor.submit("frame 0")
    bench.wait_entered(stage)
    bench.supervisor.pause()
    assert bench.drops == [(0, Drop.CLOSED)]
    bench.run("stop")
    bench.frame()
    assert [result.value for result in bench.results] == [("frame 1", "first 0", "stop")]
    assert not bench.failures


def test_a_stage_that_outlasts_a_pause_is_a_failure() -> None:
    bench = Bench(IMPATIENT)
    bench.run()
    bench.faults["prefix"] = ["stuck"]
    bench.supervisor.submit("frame 0")
    bench.wait_entered("prefix")
    bench.run("another")
    assert bench.failures == ["a stage does not end when it is cancelled"]
    bench.later(0.5)
    bench.frame()
    assert bench.results[0].value == ("frame 1", "pipeline 1", "another")
    bench.released.set()


def test_a_pause_while_stages_are_readied_starts_nothing(bench: Bench) -> None:
    def prepare(stages: Any) -> None:
        bench.supervisor.pause()
        if stages.cancelled.is_set():
            raise RuntimeError("cancelled")

    bench.supervisor.run(prepare)
    bench.later(1.0)
    bench.frame()
    assert bench.drops == [(0, Drop.NO_PIPELINE)]
    assert not bench.failures
    bench.run()
    bench.frame()
    assert len(bench.results) == 1


def test_frames_on_both_stages_and_the_one_that_waits_are_dropped_together(bench: Bench) -> None:
    bench.run()
    bench.faults = {"prefix": ["", "stall"], "suffix": ["stall"]}
    bench.supervisor.submit("frame 0")
    bench.wait_entered("suffix")
    bench.supervisor.submit("frame 1")
    bench.wait_entered("prefix")
    bench.supervisor.submit("frame 2")
    bench.later(5.1)
    assert sorted(bench.drops) == [(0, Drop.FAILED), (1, Drop.FAILED), (2, Drop.FAILED)]
    bench.later(0.5)
    bench.frame()
    assert [result.number for result in bench.results] == [3]


FAULTS = st.sampled_from(["", "", "", "raise", "die", "skip", "stall"])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["frame", "later", "instruct", "pause"]), FAULTS, FAULTS), max_size=25)
)
def test_whatever_happens_results_are_right_in_order_and_all_frames_accounted_for(
    moves: list[tuple[str, str, str]],
) -> None:
    bench = Bench()
    said = "0"
    for move, prefix, suffix in moves:
        if move == "frame":
            bench.faults = {"prefix": [prefix], "suffix": [suffix]}
            bench.supervisor.submit(f"frame {bench.supervisor.counts.submitted}")
        elif move == "later":
            bench.later(6.0)
        elif move == "instruct":
            said = str(int(said) + 1)
            bench.run(said)
        else:
            bench.supervisor.pause()
    assert bench.supervisor.close(PATIENCE_S)
    counts = bench.supervisor.counts
    assert counts.under_way == 0
    numbers = [result.number for result in bench.results]
    assert numbers == sorted(set(numbers))
    assert sorted(numbers + [number for number, _ in bench.drops]) == list(range(counts.submitted))
    for result in bench.results:
        assert result.value[0] == f"frame {result.number}"
    spoken = [int(result.value[2]) for result in bench.results]
    assert spoken == sorted(spoken)


@pytest.mark.parametrize(
    "wrong", [{"stall_s": 0.0}, {"pause_s": -1.0}, {"longest_pause_s": 0.1}, {"limit": -1}, {"forgiven": 0}]
)
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RestartSettings(**wrong)
