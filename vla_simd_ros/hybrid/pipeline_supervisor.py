"""Keeps frames flowing through two stages whatever becomes of these: restarts, then a fallback, then a stop.

A stage that raises, stalls or dies ends its pipeline at once; frames that were in it are dropped, and what
it still computes counts no more. After a pause the pipeline is started again: with the same stages the first
time, with others where that did not help, or where one is stuck. After too many failures in a row the
fallback computes instead, under the same rules; when that fails as often, nothing does any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from vla_simd_ros.hybrid.frame_pipeline import (
    Drop,
    FrameLedger,
    FramePipeline,
    FrameResult,
    PipelineCounts,
    PipelineError,
)
from vla_simd_ros.hybrid.prefix_start import PrefixStart


class Mode(Enum):
    """What computes."""

    PIPELINE = "pipeline"
    FALLBACK = "fallback"
    STOPPED = "stopped"
    """Nothing any more: the fallback has failed too often as well."""


class Stages(Protocol):
    """Two stages that frames pass through, and what they compute with."""

    def prefix(self, value: Any) -> Any:
        """The first stage; may raise UnusableFrame, or anything else where it failed."""

    def suffix(self, value: Any) -> Any:
        """The second one, from what the first has returned."""

    def cancel(self) -> None:
        """From any thread: what runs raises as soon as it can, and so does what is called until
        :meth:`resume`."""

    def resume(self) -> None:
        """Let stages run again."""

    def close(self) -> None:
        """Free what the stages hold; neither runs."""


@dataclass(frozen=True)
class RestartSettings:
    """What is a failure, and what follows.

    stall_s: a stage that takes longer has failed
    limit: so many times in a row what failed is started again
    pause_s: before the first restart; twice as long before each one that follows in a row
    longest_pause_s: at most
    forgiven: after so many results in a row failures of before count no more
    """

    stall_s: float = 10.0
    limit: int = 3
    pause_s: float = 0.5
    longest_pause_s: float = 30.0
    forgiven: int = 100

    def __post_init__(self) -> None:
        if not self.stall_s > 0.0 or not 0.0 <= self.pause_s <= self.longest_pause_s:
            raise ValueError(
                f"stall_s is {self.stall_s}, pause_s {self.pause_s} and longest_pause_s "
                f"{self.longest_pause_s}, expected a stall after more than 0 s and pauses in order"
            )
        if self.limit < 0 or self.forgiven < 1:
            raise ValueError(
                f"limit is {self.limit} and forgiven {self.forgiven}, expected 0 or more and 1 or more"
            )

    def pause(self, failures: int) -> float:
        """Seconds after so many failures in a row, 1 or more."""
        return float(min(self.longest_pause_s, self.pause_s * 2.0 ** (failures - 1)))


Prepare = Callable[[Any], None]
"""Readies stages for frames, as by an instruction; may raise."""


class PipelineSupervisor:
    """Runs frames through stages that may fail.

    Args:
        stages: those to begin with.
        make: makes others like them, where those that there are cannot be used any more.
        make_fallback: makes what computes after too many failures.
        settings: see there.
        on_result, on_drop: as of FramePipeline; results are in the order of submission throughout.
        on_failure: called with what failed, in words; from any thread.
        clock: seconds.
        late_prefix: the first stage begins only so early that its result need not wait, see
            :mod:`vla_simd_ros.hybrid.prefix_start`.

    :meth:`submit` and :meth:`pause` may be called from any thread and do not wait for a stage. The others
    take as long as stages take to be made, and belong to one thread: :meth:`check` does what is due, so it is
    called every now and then.
    """

    def __init__(
        self,
        stages: Stages,
        make: Callable[[], Stages],
        make_fallback: Callable[[], Stages],
        settings: RestartSettings,
        *,
        on_result: Callable[[FrameResult], None],
        on_drop: Callable[[int, Drop], None],
        on_failure: Callable[[str], None],
        clock: Callable[[], float],
        late_prefix: bool = False,
    ) -> None:
        self._late_prefix = late_prefix
        self._stages: Stages | None = stages
        self._made_for = Mode.PIPELINE
        self._make = {Mode.PIPELINE: make, Mode.FALLBACK: make_fallback}
        self._settings = settings
        self._on_result, self._on_drop, self._on_failure = on_result, on_drop, on_failure
        self._clock = clock
        self._ledger = FrameLedger()
        # Held while frames are let through or not any more, with what that means for the stages. No callback
        # of a pipeline takes it: they run under that pipeline's own lock, which is taken inside this one.
        self._switching = threading.Lock()
        self._lock = threading.Lock()  # for a moment, around the fields that follow
        self._mode = Mode.PIPELINE
        self._running: FramePipeline | None = None
        self._ending: FramePipeline | None = None
        self._ending_failed = False
        self._abandoned: list[tuple[FramePipeline, Stages | None]] = []
        self._prepare: Prepare | None = None
        self._restart_at: float | None = None
        self._failures = 0
        self._results = 0
        self._restarts = 0
        self._suspect = False  # whether other stages are wanted than those there are
        self._reason = ""

    @property
    def mode(self) -> Mode:
        """What computes, or will after the pause."""
        return self._mode

    @property
    def waiting(self) -> bool:
        """Whether frames are wanted and nothing computes yet, or again."""
        with self._lock:
            return self._running is None and self._prepare is not None and self._mode is not Mode.STOPPED

    @property
    def reason(self) -> str:
        """What failed last, in words; empty where nothing has."""
        return self._reason

    @property
    def restarts(self) -> int:
        """How often stages were started again after a failure."""
        return self._restarts

    @property
    def counts(self) -> PipelineCounts:
        """Frames so far, over all restarts."""
        return self._ledger.counts

    @property
    def stages(self) -> Stages | None:
        """Those in use; None where none are."""
        return self._stages

    def submit(self, value: Any) -> int:
        """Hand a frame in; its number."""
        with self._lock:
            running = self._running
        if running is not None:
            try:
                return running.submit(value)
            except PipelineError:
                pass  # it was shut just now
        return self.refuse()

    def refuse(self) -> int:
        """Count a frame that came while nothing computed, and was not kept; its number."""
        number = self._ledger.submitted()
        self._ledger.dropped(Drop.NO_PIPELINE)
        self._on_drop(number, Drop.NO_PIPELINE)
        return number

    def pause(self) -> None:
        """Give no more results: frames under way are dropped, and what computes them is cancelled."""
        with self._switching:
            self._shut()

    def run(self, prepare: Prepare) -> None:
        """Let frames through once ``prepare`` has readied the stages, which it is given; after a failure it
        readies those that are started then.

        Raises the ValueError of ``prepare`` where it cannot do what it is to, and waits for another call
        then; whatever else it raises is a failure of the stages.
        """
        with self._switching:
            self._shut()
            self._prepare = prepare
        if self._restart_at is not None or self._mode is Mode.STOPPED:
            return
        try:
            self._start(prepare)
        except ValueError:
            self.pause()
            raise

    def check(self) -> None:
        """Find stages that stall; start again what failed, when its pause is over; free what was left to
        threads that have come back."""
        self._free_abandoned()
        with self._lock:
            running, due, prepare = self._running, self._restart_at, self._prepare
        if running is not None:
            running.check()
        elif due is not None and prepare is not None and self._clock() >= due:
            self._restart_at = None
            self._restarts += 1
            try:
                self._start(prepare)
            except ValueError as error:
                self._failed(f"the {self._mode.value} cannot be readied: {error}")

    def close(self, timeout: float) -> bool:
        """End everything; false where a stage still runs after ``timeout`` seconds, and keeps what it
        computes with."""
        self.pause()
        at_rest = self._ending is None or self._ending.ended(timeout / 2)  # for each of two
        if at_rest and self._stages is not None:
            self._stages.close()
        self._stages = None
        self._free_abandoned()
        return at_rest and not self._abandoned

    def _free_abandoned(self) -> None:
        still = []
        for pipeline, stages in self._abandoned:
            if not pipeline.ended():
                still.append((pipeline, stages))
            elif stages is not None:
                stages.close()
        self._abandoned = still

    def _shut(self) -> None:
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                self._ending, self._ending_failed = running, False
            self._prepare = None
        if running is not None:
            running.shut()
        if self._stages is not None:
            self._stages.cancel()

    def _start(self, prepare: Prepare) -> None:
        """Ready stages that are at rest, and let frames through. Raises the ValueError of ``prepare``."""
        stages = self._at_rest()
        if stages is None:
            return
        with self._switching:
            if self._prepare is not prepare:  # paused meanwhile
                return
            stages.resume()
        try:
            prepare(stages)
        except ValueError:
            raise
        except Exception as error:
            if self._prepare is prepare:
                self._failed(f"the {self._mode.value} cannot be readied: {error or type(error).__name__}")
            return
        with self._lock:
            if self._prepare is prepare:
                self._running, self._restart_at = self._pipeline(stages), None

    def _at_rest(self) -> Stages | None:
        """Stages of the present mode that no thread is in; None where there are none now."""
        ending, self._ending = self._ending, None
        if ending is not None and not ending.ended(self._settings.stall_s):
            # Its thread may never come back: what it computes with is left to it until then.
            self._abandoned.append((ending, self._stages))
            self._stages = None
            if self._made_for is Mode.FALLBACK:
                self._stop("it does not end")
                return None
            if not self._ending_failed:
                self._failed("a stage does not end when it is cancelled")
                return None
        if self._stages is not None and (self._made_for is not self._mode or self._suspect):
            self._stages.close()
            self._stages = None
        if self._stages is None:
            try:
                self._stages, self._made_for = self._make[self._mode](), self._mode
                self._suspect = False
            except Exception as error:  # whatever it is, it may be gone the next time
                self._failed(f"the {self._mode.value} cannot be made: {error or type(error).__name__}")
        return self._stages

    def _pipeline(self, stages: Stages) -> FramePipeline:
        def result(frame: FrameResult) -> None:
            self._results += 1
            if self._results >= self._settings.forgiven:
                self._failures = 0
            self._on_result(frame)

        def failed(error: PipelineError) -> None:
            with self._lock:
                if self._running is not pipeline:
                    return  # it was paused just now
                self._running, self._ending, self._ending_failed = None, pipeline, True
            stages.cancel()
            self._failed(str(error))

        pipeline = FramePipeline(
            stages.prefix,
            stages.suffix,
            on_result=result,
            on_drop=self._on_drop,
            on_failure=failed,
            clock=self._clock,
            stall_s=self._settings.stall_s,
            ledger=self._ledger,
            start=PrefixStart() if self._late_prefix else None,
        )
        return pipeline

    def _failed(self, reason: str) -> None:
        self._failures += 1
        self._results = 0
        self._reason = reason
        self._suspect = self._failures > 1  # starting them again did not help
        pause_s = self._settings.pause(self._failures)
        if self._failures > self._settings.limit:
            if self._mode is Mode.FALLBACK:
                self._stop(reason)
                return
            self._mode, self._failures, pause_s = Mode.FALLBACK, 0, 0.0
        self._restart_at = self._clock() + pause_s
        self._on_failure(reason)

    def _stop(self, reason: str) -> None:
        self._mode, self._restart_at = Mode.STOPPED, None
        self._reason = f"the fallback failed too often, nothing is computed any more: {reason}"
        self._on_failure(self._reason)
