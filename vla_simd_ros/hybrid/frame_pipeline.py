"""Two stages that work on consecutive frames at the same time, one thread each.

Between submission and result a frame waits in at most two places, before either stage, and each holds one
frame: where a newer one comes to a place that is taken, the older is dropped, counted and reported. So
results come in the order of submission, and no frame is older than it need be.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from vla_simd_ros.hybrid.prefix_start import PrefixStart

T = TypeVar("T")

Stage = Callable[[Any], Any]
"""From what came before to what comes after; it may raise."""


class Drop(Enum):
    """Why a frame got no result."""

    PREFIX_BUSY = "prefix_busy"
    """A newer frame came before the first stage began on it."""
    SUFFIX_BUSY = "suffix_busy"
    """A newer frame left the first stage before the second began on it."""
    UNUSABLE = "unusable"
    """A stage found that there is nothing to be made of it."""
    FAILED = "failed"
    """A stage raised, stalled or died while the frame was in the pipeline."""
    CLOSED = "closed"
    """The pipeline was closed while the frame was in it."""
    NO_PIPELINE = "no_pipeline"
    """It came while no pipeline ran: between a failure and the restart, or none will run any more."""


class PipelineError(RuntimeError):
    """A stage failed; says which, on which frame, and how."""


class UnusableFrame(Exception):
    """Raised by a stage that can make nothing of a frame, and is ready for the next one; says why."""


@dataclass(frozen=True)
class FrameTimes:
    """Seconds of the pipeline's clock; None for what has not happened."""

    submitted: float
    prefix_began: float | None = None
    prefix_ended: float | None = None
    suffix_began: float | None = None
    suffix_ended: float | None = None


@dataclass(frozen=True, eq=False)
class FrameResult:
    """What the second stage made of the frame with this number, and when."""

    number: int
    value: Any
    times: FrameTimes

    @property
    def latency_s(self) -> float:
        """From submission to the result."""
        assert self.times.suffix_ended is not None
        return self.times.suffix_ended - self.times.submitted


@dataclass(frozen=True)
class PipelineCounts:
    """Frames so far: ``submitted`` = ``finished`` + all ``dropped`` + those under way."""

    submitted: int = 0
    finished: int = 0
    dropped: Mapping[Drop, int] = field(default_factory=lambda: dict.fromkeys(Drop, 0))

    @property
    def under_way(self) -> int:
        """Frames that wait or are worked on."""
        return self.submitted - self.finished - sum(self.dropped.values())


class FrameLedger:
    """Numbers frames from 0 and counts what becomes of them, from any thread.

    Pipelines that follow each other share one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = PipelineCounts()

    @property
    def counts(self) -> PipelineCounts:
        """Counts so far."""
        with self._lock:
            return self._counts

    def submitted(self) -> int:
        """The number of one more frame."""
        with self._lock:
            number = self._counts.submitted
            self._counts = replace(self._counts, submitted=number + 1)
            return number

    def finished(self) -> None:
        """A frame has its result."""
        with self._lock:
            self._counts = replace(self._counts, finished=self._counts.finished + 1)

    def dropped(self, reason: Drop) -> None:
        """A frame gets none."""
        with self._lock:
            dropped = {**self._counts.dropped, reason: self._counts.dropped[reason] + 1}
            self._counts = replace(self._counts, dropped=dropped)


@dataclass(frozen=True, eq=False)
class _Frame:
    number: int
    value: Any
    times: FrameTimes


class _Place(Generic[T]):
    """Room for one item, for one thread that waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._item: T | None = None
        self._closed = False

    def put(self, item: T) -> T | None:
        """Leave ``item``; the one that it replaces, if any. A closed place gives it back."""
        with self._changed:
            if self._closed:
                return item
            replaced, self._item = self._item, item
            self._changed.notify()
            return replaced

    def take(self, wait_s: Callable[[], float] = lambda: 0.0) -> T | None:
        """Wait for an item, then as long as ``wait_s()`` is not 0; None when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._item is not None or self._closed)
            while not self._closed and (seconds := wait_s()) > 0.0:
                self._changed.wait(seconds)
            item, self._item = self._item, None
            return item

    def stir(self) -> None:
        """Let who waits in :meth:`take` ask again for how long."""
        with self._changed:
            self._changed.notify()

    def close(self) -> T | None:
        """Let nobody wait any more; the item that was there."""
        with self._changed:
            self._closed = True
            item, self._item = self._item, None
            self._changed.notify()
            return item


class FramePipeline:
    """Runs ``prefix`` and ``suffix`` on the frames submitted.

    ``on_result`` gets a FrameResult, ``on_drop`` the number of a frame and why, ``on_failure`` a
    PipelineError; each is called from one of the pipeline's threads or from a caller's, never two at a time,
    and not after :meth:`shut` has returned. After a failure nothing more comes: make another pipeline, or do
    without. ``clock`` gives seconds. A stage that takes longer than ``stall_s`` has failed, and so has one
    whose thread has ended; :meth:`check` finds that. ``ledger`` has the numbers and counts; None: its own.
    ``start`` says when the first stage begins; None: as soon as there is a frame.
    """

    def __init__(
        self,
        prefix: Stage,
        suffix: Stage,
        *,
        on_result: Callable[[FrameResult], None],
        on_drop: Callable[[int, Drop], None],
        on_failure: Callable[[PipelineError], None],
        clock: Callable[[], float],
        stall_s: float,
        ledger: FrameLedger | None = None,
        start: PrefixStart | None = None,
    ) -> None:
        self._start = start
        self._stages = {"prefix": prefix, "suffix": suffix}
        self._on_result, self._on_drop, self._on_failure = on_result, on_drop, on_failure
        self._clock = clock
        self._stall_s = stall_s
        self._telling = threading.RLock()
        self._open = True
        self._ledger = ledger or FrameLedger()
        self._working: dict[str, _Frame | None] = {"prefix": None, "suffix": None}
        self._before_prefix: _Place[_Frame] = _Place()
        self._before_suffix: _Place[_Frame] = _Place()
        self._threads = [
            threading.Thread(target=target, name=f"frame-pipeline-{name}", daemon=True)
            for name, target in (("prefix", self._run_prefix), ("suffix", self._run_suffix))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def counts(self) -> PipelineCounts:
        """Counts so far."""
        return self._ledger.counts

    def submit(self, value: Any) -> int:
        """Hand a frame in; its number, counted from 0. Raises PipelineError when closed or failed."""
        with self._telling:
            if not self._open:
                raise PipelineError("the pipeline is closed")
            number = self._ledger.submitted()
            self._replaced(
                self._before_prefix.put(_Frame(number, value, FrameTimes(self._clock()))), Drop.PREFIX_BUSY
            )
            return number

    def check(self) -> None:
        """Find a stage that stalls, or whose thread is gone; call it now and then."""
        with self._telling:
            if not self._open:
                return
            for thread in self._threads:
                if not thread.is_alive():
                    self._fail(PipelineError(f"the thread {thread.name} has ended"))
                    return
            now = self._clock()
            for name, frame in self._working.items():
                if frame is None:
                    continue
                took_s = now - getattr(frame.times, f"{name}_began")
                if took_s > self._stall_s:
                    took = f"{took_s:.3f} s, longer than {self._stall_s:g} s"
                    self._fail(PipelineError(f"the {name} stalled on frame {frame.number}: {took}"))
                    return

    def shut(self) -> None:
        """Drop what is under way, and let the threads end when the stages that run have ended."""
        with self._telling:
            self._shut(Drop.CLOSED)

    def ended(self, timeout: float | None = 0.0) -> bool:
        """Whether both threads have ended, after waiting at most ``timeout`` seconds for each. Not to be
        called from the callbacks."""
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)

    def close(self, timeout: float | None = None) -> bool:
        """:meth:`shut` and wait as :meth:`ended` does."""
        self.shut()
        return self.ended(timeout)

    def _run_prefix(self) -> None:
        def hand_over(frame: _Frame) -> None:
            self._replaced(self._before_suffix.put(frame), Drop.SUFFIX_BUSY)

        def wait_s() -> float:
            return 0.0 if self._start is None else self._start.wait_s(self._clock())

        while (frame := self._before_prefix.take(wait_s)) is not None:
            self._work("prefix", frame, hand_over)

    def _run_suffix(self) -> None:
        def finish(frame: _Frame) -> None:
            self._ledger.finished()
            self._on_result(FrameResult(frame.number, frame.value, frame.times))

        while (frame := self._before_suffix.take()) is not None:
            self._work("suffix", frame, finish)

    def _work(self, name: str, frame: _Frame, deliver: Callable[[_Frame], None]) -> None:
        """Run a stage on a frame; where the pipeline was shut meanwhile, its value counts no more."""
        frame = replace(frame, times=replace(frame.times, **{f"{name}_began": self._clock()}))
        with self._telling:
            if not self._open:
                self._drop(frame.number, Drop.CLOSED)
                return
            self._begin(name, frame)
        try:
            value = self._stages[name](frame.value)
        except UnusableFrame:
            with self._telling:
                if self._open:
                    self._end(name, None)
                    self._drop(frame.number, Drop.UNUSABLE)
            return
        except BaseException as error:  # whatever a stage raises ends the pipeline, and is told
            self._raised(name, frame.number, error)
            return
        ended = self._clock()
        times = replace(frame.times, **{f"{name}_ended": ended})
        with self._telling:
            if self._open:
                self._end(name, ended - getattr(times, f"{name}_began"))
                deliver(_Frame(frame.number, value, times))

    def _raised(self, name: str, number: int, error: BaseException) -> None:
        # Not where the stage was called: a variable there, which the error's own traceback leads back to,
        # would keep all that the stage had in memory.
        failure = PipelineError(f"the {name} failed on frame {number}: {_told(error)}")
        failure.__cause__ = error
        with self._telling:
            self._fail(failure)

    def _begin(self, name: str, frame: _Frame) -> None:
        self._working[name] = frame
        if self._start is not None:
            self._start.began(name, getattr(frame.times, f"{name}_began"))

    def _end(self, name: str, seconds: float | None) -> None:
        self._working[name] = None
        if self._start is not None:
            self._start.ended(name, seconds)
            self._before_prefix.stir()

    def _fail(self, error: PipelineError) -> None:
        if self._open:
            self._shut(Drop.FAILED)
            self._on_failure(error)

    def _shut(self, reason: Drop) -> None:
        """Account for every frame that is under way; their results, if they still come, count no more."""
        if not self._open:
            return
        self._open = False
        waiting = (self._before_suffix.close(), self._before_prefix.close())
        under_way = (self._working["suffix"], waiting[0], self._working["prefix"], waiting[1])
        self._working = dict.fromkeys(self._working)
        for frame in under_way:
            if frame is not None:
                self._drop(frame.number, reason)

    def _replaced(self, frame: _Frame | None, reason: Drop) -> None:
        if frame is not None:
            self._drop(frame.number, reason)

    def _drop(self, number: int, reason: Drop) -> None:
        self._ledger.dropped(reason)
        self._on_drop(number, reason)


def _told(error: BaseException) -> str:
    """An error in words: the text of a RuntimeError says it all, that of others goes with their kind."""
    text, kind = str(error), type(error).__name__
    if not text:
        return kind
    return text if type(error) is RuntimeError else f"{kind}: {text}"
