"""Frames through two stages that the test holds and lets go, on a clock that the test turns."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from held_stages import PATIENCE_S, Clock, Gate
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.hybrid.frame_pipeline import (
    Drop,
    FrameLedger,
    FramePipeline,
    FrameResult,
    PipelineError,
    UnusableFrame,
)
from vla_simd_ros.hybrid.prefix_start import PrefixStart


class Record:
    """What the pipeline told."""

    def __init__(self) -> None:
        self.results: list[FrameResult] = []
        self.drops: list[tuple[int, Drop]] = []
        self.failures: list[PipelineError] = []
        self._changed = threading.Condition()

    def tell(self, what: list[Any]) -> Callable[..., None]:
        def add(*values: Any) -> None:
            with self._changed:
                what.append(values[0] if len(values) == 1 else values)
                self._changed.notify_all()

        return add

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_S)


class Bench:
    """A pipeline of two gates."""

    def __init__(
        self,
        prefix: Any = None,
        suffix: Any = None,
        stall_s: float = 5.0,
        ledger: FrameLedger | None = None,
        on_result: Callable[[FrameResult], None] | None = None,
        start: PrefixStart | None = None,
    ) -> None:
        self.prefix, self.suffix = prefix or Gate("prefix"), suffix or Gate("suffix")
        self.clock, self.record = Clock(), Record()
        self.pipeline = FramePipeline(
            self.prefix,
            self.suffix,
            on_result=on_result or self.record.tell(self.record.results),
            on_drop=self.record.tell(self.record.drops),
            on_failure=self.record.tell(self.record.failures),
            clock=self.clock,
            stall_s=stall_s,
            ledger=ledger,
            start=start,
        )

    def run_through(self, prefix_s: float, suffix_s: float) -> None:
        """A frame, alone, with these times."""
        results, begun = len(self.record.results), len(self.prefix.began)
        self.pipeline.submit("known")
        self.prefix.wait_begun(begun + 1)
        self.clock.now += prefix_s
        self.prefix.let()
        self.suffix.wait_begun(results + 1)
        self.clock.now += suffix_s
        self.suffix.let()
        self.record.wait(lambda: len(self.record.results) == results + 1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for gate in (made.prefix, made.suffix):
        gate.let(1000)
    made.pipeline.close(PATIENCE_S)


def test_both_stages_work_at_the_same_time(bench: Bench) -> None:
    bench.pipeline.submit("a")
    bench.prefix.wait_begun(1)
    bench.clock.now = 0.3
    bench.prefix.let()
    bench.suffix.wait_begun(1)
    bench.pipeline.submit("b")
    bench.prefix.wait_begun(2)  # while the suffix is still on the first one
    bench.clock.now = 0.5
    bench.suffix.let()
    bench.record.wait(lambda: len(bench.record.results) == 1)
    (result,) = bench.record.results
    assert (result.number, result.value) == (0, ("a", "prefix", "suffix"))
    assert result.latency_s == 0.5
    assert result.times.prefix_ended == result.times.suffix_began == 0.3


def test_the_newest_frame_waits_for_the_prefix(bench: Bench) -> None:
    bench.pipeline.submit("a")
    bench.prefix.wait_begun(1)
    for value in "bcd":
        bench.pipeline.submit(value)
    assert bench.record.drops == [(1, Drop.PREFIX_BUSY), (2, Drop.PREFIX_BUSY)]
    bench.prefix.let()
    bench.suffix.wait_begun(1)
    bench.prefix.let()
    bench.suffix.let(2)
    bench.record.wait(lambda: len(bench.record.results) == 2)
    assert [result.number for result in bench.record.results] == [0, 3]
    counts = bench.pipeline.counts
    assert (counts.submitted, counts.finished, counts.under_way) == (4, 2, 0)


def late_bench() -> Bench:
    """Its first stage takes 1 s and its second 1000, and one that waits begins with the second's end."""
    bench = Bench(stall_s=1e9, start=PrefixStart())
    for _ in range(3):
        bench.run_through(1.0, 1000.0)
    bench.pipeline.submit("a")
    bench.prefix.wait_begun(4)
    bench.clock.now += 1.0
    bench.prefix.let()
    bench.suffix.wait_begun(4)
    bench.pipeline.submit("b")
    return bench


def test_a_first_stage_that_begins_late_takes_the_newest_frame() -> None:
    bench = late_bench()
    bench.pipeline.submit("c")  # b has not begun, in no time at all of the pipeline's clock
    assert bench.record.drops == [(4, Drop.PREFIX_BUSY)]
    bench.suffix.let()  # sooner than lately: the second stage is free
    bench.prefix.wait_begun(5)
    assert bench.prefix.began[-1] == "c"
    bench.prefix.let()
    bench.suffix.let()
    bench.record.wait(lambda: len(bench.record.results) == 5)
    assert [result.number for result in bench.record.results] == [0, 1, 2, 3, 5]
    assert bench.pipeline.close(PATIENCE_S)


def test_a_pipeline_is_closed_while_its_first_stage_waits_to_begin() -> None:
    bench = late_bench()
    bench.suffix.let()
    bench.pipeline.submit("c")
    bench.pipeline.shut()
    bench.prefix.let()
    assert bench.pipeline.ended(PATIENCE_S)
    assert bench.pipeline.counts.under_way == 0


def test_the_newest_frame_waits_for_the_suffix(bench: Bench) -> None:
    bench.prefix.let(3)
    for number, value in enumerate("abc"):
        bench.pipeline.submit(value)
        bench.prefix.wait_begun(number + 1)
        if not number:
            bench.suffix.wait_begun(1)
    bench.record.wait(lambda: bool(bench.record.drops))
    assert bench.record.drops == [(1, Drop.SUFFIX_BUSY)]
    bench.suffix.let(2)
    bench.record.wait(lambda: len(bench.record.results) == 2)
    assert [result.value[0] for result in bench.record.results] == ["a", "c"]


@pytest.mark.parametrize("bad", ["prefix", "suffix"])
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_stage_that_raises_is_reported_and_nothing_comes_after(
    bad: str, error: type[BaseException]
) -> None:
    def fail(value: Any) -> Any:
        raise error("no memory left")

    bench = Bench(**{"prefix": lambda value: value, "suffix": lambda value: value, bad: fail})
    bench.pipeline.submit("a")
    bench.record.wait(lambda: bool(bench.record.failures))
    (failure,) = bench.record.failures
    assert str(failure) == f"the {bad} failed on frame 0: {error.__name__}: no memory left"
    assert isinstance(failure.__cause__, error)
    assert bench.record.drops == [(0, Drop.FAILED)]
    with pytest.raises(PipelineError, match="the pipeline is closed"):
        bench.pipeline.submit("b")
    bench.pipeline.close(PATIENCE_S)
    assert not bench.record.results
    assert bench.pipeline.counts.under_way == 0


def test_a_stage_that_stalls_is_found_and_its_late_result_counts_no_more(bench: Bench) -> None:
    bench.pipeline.submit("a")
    bench.prefix.wait_begun(1)
    bench.prefix.let()
    bench.suffix.wait_begun(1)
    bench.pipeline.submit("b")
    bench.prefix.wait_begun(2)
    bench.clock.now = 5.0
    bench.pipeline.check()
    assert not bench.record.failures
    bench.clock.now = 5.1
    bench.pipeline.check()
    (failure,) = bench.record.failures
    assert "stalled on frame" in str(failure)
    assert "5.100 s, longer than 5 s" in str(failure)
    assert sorted(bench.record.drops) == [(0, Drop.FAILED), (1, Drop.FAILED)]
    bench.prefix.let()
    bench.suffix.let()
    bench.pipeline.close(PATIENCE_S)
    assert not bench.record.results


@pytest.mark.parametrize("name", ["prefix", "suffix"])
def test_a_frame_that_a_stage_can_make_nothing_of_is_dropped_and_the_next_one_taken(name: str) -> None:
    def choosy(value: Any) -> Any:
        if value == "dark":
            raise UnusableFrame("it is dark")
        return value

    bench = Bench(**{"prefix": lambda value: value, "suffix": lambda value: value, name: choosy})
    bench.pipeline.submit("dark")
    bench.record.wait(lambda: bool(bench.record.drops))
    bench.pipeline.submit("light")
    bench.record.wait(lambda: bool(bench.record.results))
    assert bench.record.drops == [(0, Drop.UNUSABLE)]
    assert bench.record.results[0].value == "light"
    assert not bench.record.failures
    assert bench.pipeline.close(PATIENCE_S)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_is_found() -> None:
    """As after a result that whoever takes it chokes on."""

    def choke(result: FrameResult) -> None:
        raise SystemExit

    bench = Bench(prefix=lambda value: value, suffix=lambda value: value, on_result=choke)
    bench.pipeline.submit("a")
    (suffix,) = (thread for thread in bench.pipeline._threads if thread.name.endswith("suffix"))
    suffix.join(PATIENCE_S)
    bench.pipeline.check()
    (failure,) = bench.record.failures
    assert str(failure) == "the thread frame-pipeline-suffix has ended"
    bench.pipeline.check()
    assert len(bench.record.failures) == 1
    assert bench.pipeline.close(PATIENCE_S)


class Held:
    """What a frame is computed with."""


@pytest.mark.parametrize("bad", ["prefix", "suffix"])
def test_a_stage_that_raised_holds_nothing_any_more(bad: str) -> None:
    """Not even until the interpreter looks for cycles: others are loaded in the place of what failed."""
    told: list[str] = []
    over = threading.Event()

    def work(value: Held) -> Held:
        return value

    def fail(value: Held) -> Held:
        used = value
        raise RuntimeError(f"no memory left for {type(used).__name__}")

    def failed(error: PipelineError) -> None:
        told.append(str(error))
        over.set()

    gc.disable()
    try:
        value = Held()
        held = weakref.ref(value)
        pipeline = FramePipeline(
            *({"prefix": work, "suffix": work} | {bad: fail}).values(),
            on_result=lambda result: None,
            on_drop=lambda number, reason: None,
            on_failure=failed,
            clock=Clock(),
            stall_s=5.0,
        )
        pipeline.submit(value)
        del value
        assert over.wait(PATIENCE_S) and pipeline.ended(PATIENCE_S)
        assert held() is None
    finally:
        gc.enable()
    assert told == [f"the {bad} failed on frame 0: no memory left for Held"]


def test_pipelines_that_follow_each_other_go_on_with_the_numbers() -> None:
    ledger = FrameLedger()
    for number in range(2):
        bench = Bench(prefix=lambda value: value, suffix=lambda value: value, ledger=ledger)
        assert bench.pipeline.submit("a") == number
        results = bench.record.results
        bench.record.wait(lambda results=results: bool(results))  # type: ignore[misc]
        assert bench.pipeline.close(PATIENCE_S)
    assert (ledger.counts.submitted, ledger.counts.finished, ledger.counts.under_way) == (2, 2, 0)


def test_closing_accounts_for_every_frame(bench: Bench) -> None:
    bench.prefix.let()
    bench.pipeline.submit("a")
    bench.suffix.wait_begun(1)
    bench.pipeline.submit("b")
    bench.prefix.wait_begun(2)
    bench.pipeline.submit("c")
    bench.prefix.let()
    bench.suffix.let()
    assert bench.pipeline.close(PATIENCE_S)
    assert {reason for _, reason in bench.record.drops} <= {Drop.CLOSED, Drop.SUFFIX_BUSY}
    counts = bench.pipeline.counts
    assert counts.under_way == 0
    assert counts.submitted == 3
    assert len(bench.record.drops) + len(bench.record.results) == 3
    bench.pipeline.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["submit", "prefix", "suffix"]), max_size=40))
def test_results_come_in_order_and_every_frame_is_accounted_for(moves: list[str]) -> None:
    bench = Bench()
    for move in moves:
        if move == "submit":
            bench.pipeline.submit(None)
        else:
            getattr(bench, move).let()
    for gate in (bench.prefix, bench.suffix):
        gate.let(1000)
    bench.record.wait(lambda: len(bench.record.results) + len(bench.record.drops) == moves.count("submit"))
    bench.pipeline.close(PATIENCE_S)
    assert bench.pipeline.counts.under_way == 0
    numbers = [result.number for result in bench.record.results]
    dropped = [number for number, _ in bench.record.drops]
    assert numbers == sorted(set(numbers))
    assert sorted(numbers + dropped) == list(range(moves.count("submit")))
    if moves.count("submit"):
        assert numbers[-1] == moves.count("submit") - 1, "the newest frame has a result"
