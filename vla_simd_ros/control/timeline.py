"""Which row of which chunk a control step executes.

Control steps lie on a grid of one control period. A chunk's rows lie on their own times: from its capture
time in time-aligned execution, from the control step that took it over in lagged execution. A control step
executes the newest row whose time has come, every row at most once, and never one meant for a time before
that of a row already executed; rows whose time passed before they could be executed are dropped and counted.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from vla_simd_ros.control.blending import Blending
from vla_simd_ros.control.chunk import Chunk, ChunkRejected, RejectReason, Rows
from vla_simd_ros.control.committed import CommittedPrefix, ExecutedRows
from vla_simd_ros.control.plan import Ahead, Plan, new_plan


class Mode(str, enum.Enum):
    """When a chunk's first row is meant to be executed."""

    LAGGED = "lagged"
    TIME_ALIGNED = "time_aligned"


class StepKind(enum.Enum):
    """What a control step has to do."""

    WAITING = "waiting"
    """No row of this epoch has been executed yet, and none is due."""
    ROW = "row"
    """A new row is due."""
    KEEP = "keep"
    """The row of the step before stays in force: the time of the next one has not come."""
    STARVED = "starved"
    """The rows have run out."""


@dataclass(frozen=True)
class Step:
    """What the timeline wants at a control step.

    ``target`` is float64 ``[joints]`` for ROW and KEEP. ``row`` is the row's index in its chunk,
    ``stamp_ns`` the capture time of its observation. ``splice`` is set on the first step of a chunk that
    follows another: the largest change over the joints from the last target.
    """

    kind: StepKind
    target: Rows | None = None
    row: int = -1
    sequence: int = 0
    stamp_ns: int = 0
    splice: float | None = None


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _exclusive(method: _Method) -> _Method:
    """A method of the timeline that runs while no other one does."""

    @functools.wraps(method)
    def locked(self: ChunkTimeline, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(_Method, locked)


# Chunks that arrive between two control steps beyond this number replace the first ones of them.
_MOST_ARRIVED = 64


class ChunkTimeline:
    """The chunks of the present epoch, and the row for each control step.

    Its methods may be called from any thread: one runs at a time.

    Args:
        mode: lagged or time-aligned.
        period_ns: the control period.
        blending: how a chunk is joined to the plan in execution.
        future_tolerance_ns: a capture time further in the future than this is refused.
        max_age_ns: a capture time longer ago than this is refused.

    Attributes:
        mode: lagged or time-aligned.
        epoch: the present epoch, or None while none has been announced.
        stale_rows: rows dropped because their time had passed.
        starved_steps: control steps that found no row after the epoch's first one had been executed.
        executed_steps: control steps that executed a new row.
    """

    def __init__(
        self, mode: Mode, period_ns: int, blending: Blending, future_tolerance_ns: int, max_age_ns: int
    ) -> None:
        self.mode = mode
        self.epoch: int | None = None
        self._period_ns = period_ns
        self._blending = blending
        self._future_tolerance_ns = future_tolerance_ns
        self._max_age_ns = max_age_ns
        self.stale_rows = 0
        self.starved_steps = 0
        self.executed_steps = 0
        self._lock = threading.Lock()
        self._arrived: deque[Chunk] = deque(maxlen=_MOST_ARRIVED)
        self._executed = ExecutedRows(period_ns)
        self.clock_jumped()

    @_exclusive
    def clock_jumped(self) -> None:
        """Forget all times: rows, sequence and stamps of the present epoch, and the last control step."""
        self._time_ns: int | None = None
        self._row_ns: int | None = None
        self._last_sequence: int | None = None
        self._last_stamp_ns: int | None = None
        self._clear_rows()

    @_exclusive
    def start_epoch(self, epoch: int) -> None:
        """Drop the rows of the epoch before; nothing is due until the new epoch's first chunk arrives."""
        self.epoch = epoch
        self._last_sequence = None
        self._last_stamp_ns = None
        self._clear_rows()

    @_exclusive
    def clear_rows(self) -> None:
        """Drop the rows and keep epoch, sequence and stamps: after a hold, only a new chunk restarts."""
        self._clear_rows()

    def _clear_rows(self) -> None:
        self._plan: Plan | None = None
        self._arrived.clear()
        self._executed.clear()
        self._in_force: Step | None = None

    @_exclusive
    def add(self, chunk: Chunk, now_ns: int) -> None:
        """Take a checked chunk; it takes over at the next control step.

        Raises:
            ChunkRejected: stamp, epoch or sequence forbid it; nothing has changed.
        """
        self._check_epoch(chunk)
        self._check_sequence(chunk)
        self._check_stamp(chunk, now_ns)
        self._last_sequence, self._last_stamp_ns = chunk.sequence, chunk.stamp_ns
        if self.mode is Mode.TIME_ALIGNED and now_ns >= chunk.stamp_ns + chunk.duration_ns:
            self.stale_rows += chunk.window
            raise ChunkRejected(
                RejectReason.EXPIRED,
                f"chunk {chunk.sequence}: all {chunk.window} rows are stale, "
                f"it arrived {(now_ns - chunk.stamp_ns) * 1e-6:.1f} ms after its capture time",
            )
        self._arrived.append(chunk)

    @_exclusive
    def advance(self, time_ns: int) -> Step:
        """What to do at the control step meant for ``time_ns``.

        Raises:
            ValueError: time did not go forwards; after a jump of the clock call :meth:`clock_jumped` first.
        """
        if self._time_ns is not None and time_ns <= self._time_ns:
            raise ValueError(f"control step at {time_ns} ns, expected one after {self._time_ns} ns")
        self._time_ns = time_ns
        self._take_over(time_ns)
        step = self._execute(time_ns)
        if step.target is None:
            self._executed.clear()
        else:
            self._executed.add(time_ns, step.target)
        return step

    @_exclusive
    def buffered_steps(self) -> int:
        """Control steps for which a row is still there, counted after the last one executed."""
        next_ns = (self._time_ns or 0) + self._period_ns
        if self._arrived:
            newest = self._arrived[-1]
            origin_ns = newest.stamp_ns if self.mode is Mode.TIME_ALIGNED else next_ns
            end_ns = origin_ns + newest.duration_ns
        elif self._plan is not None:
            end_ns = self._plan.end_ns
        else:
            return 0
        return max(0, -(-(end_ns - next_ns) // self._period_ns))

    @_exclusive
    def committed(self, until_ns: int) -> CommittedPrefix | None:
        """The rows executed last, and those due before ``until_ns``; None while none is executed.

        The rows are those of the plan as it is: to be asked for before a chunk is awaited, not while one
        that has arrived waits for its control step.
        """
        plan, time_ns = self._plan, self._time_ns
        if plan is None or time_ns is None or self.epoch is None or not len(self._executed):
            return None
        rows = list(self._executed)
        for due_ns in range(time_ns + self._period_ns, until_ns, self._period_ns):
            row = plan.row_at(due_ns)
            if row >= plan.chunk.window:
                break
            rows.append(rows[-1] if row < plan.next_row else plan.rows[row])
        return CommittedPrefix(
            epoch=self.epoch,
            sequence=plan.chunk.sequence,
            first_row=plan.next_row,
            start_ns=self._executed.start_ns,
            period_ns=self._period_ns,
            executed=len(self._executed),
            rows=np.array(rows),
        )

    @_exclusive
    def ahead(self) -> Ahead | None:
        """The row in force at the last control step and those planned after it; None without a plan."""
        if self._plan is None or self._time_ns is None:
            return None
        return self._plan.ahead(self._time_ns)

    def _check_epoch(self, chunk: Chunk) -> None:
        if self.epoch is None or chunk.epoch > self.epoch:
            raise ChunkRejected(
                RejectReason.UNKNOWN_EPOCH,
                f"chunk {chunk.sequence}: epoch {chunk.epoch} has not been announced, "
                f"the present one is {self.epoch}",
            )
        if chunk.epoch < self.epoch:
            raise ChunkRejected(
                RejectReason.OLDER_EPOCH,
                f"chunk {chunk.sequence}: epoch {chunk.epoch} is older than the present one, {self.epoch}",
            )

    def _check_sequence(self, chunk: Chunk) -> None:
        last = self._last_sequence
        if last is None or chunk.sequence > last:
            return
        reason = RejectReason.SEQUENCE_BACKWARDS
        if chunk.sequence == last:
            reason = RejectReason.DUPLICATE_SEQUENCE
        raise ChunkRejected(reason, f"chunk {chunk.sequence}: expected a sequence number above {last}")

    def _check_stamp(self, chunk: Chunk, now_ns: int) -> None:
        name, stamp_ns = f"chunk {chunk.sequence}", chunk.stamp_ns
        if stamp_ns <= 0:
            raise ChunkRejected(
                RejectReason.STAMP_ZERO, f"{name}: the stamp is zero, expected the capture time"
            )
        if stamp_ns > now_ns + self._future_tolerance_ns:
            raise ChunkRejected(
                RejectReason.STAMP_FUTURE,
                f"{name}: the capture time lies {(stamp_ns - now_ns) * 1e-6:.1f} ms in the future, "
                f"expected at most {self._future_tolerance_ns * 1e-6:.1f} ms",
            )
        if self._last_stamp_ns is not None and stamp_ns < self._last_stamp_ns:
            raise ChunkRejected(
                RejectReason.STAMP_BACKWARDS,
                f"{name}: the capture time is {(self._last_stamp_ns - stamp_ns) * 1e-6:.1f} ms "
                "before that of the chunk before",
            )
        if now_ns - stamp_ns > self._max_age_ns:
            raise ChunkRejected(
                RejectReason.TOO_OLD,
                f"{name}: the capture time was {(now_ns - stamp_ns) * 1e-9:.3f} s ago, "
                f"expected at most {self._max_age_ns * 1e-9:.3f} s",
            )

    def _take_over(self, time_ns: int) -> None:
        """Put the chunks that arrived in execution, those whose first row is due."""
        while self._arrived:
            chunk = self._arrived[0]
            origin_ns = chunk.stamp_ns if self.mode is Mode.TIME_ALIGNED else time_ns
            if origin_ns > time_ns:
                return
            self._arrived.popleft()
            if time_ns >= origin_ns + chunk.duration_ns:
                self.stale_rows += chunk.window
                continue
            plan = new_plan(chunk, origin_ns, self._plan, time_ns, self._period_ns, self._blending)
            plan.follows = self._in_force is not None
            if self._row_ns is not None:
                plan.next_row = min(max(0, plan.row_at(self._row_ns) + 1), chunk.window)
                self.stale_rows += plan.next_row
            self._plan = plan

    def _execute(self, time_ns: int) -> Step:
        plan = self._plan
        if plan is None:
            return self._out_of_rows()
        row, window = plan.row_at(time_ns), plan.chunk.window
        self.stale_rows += max(0, min(row, window) - plan.next_row)
        if row >= window:
            plan.next_row = window
            return self._out_of_rows()
        if row < plan.next_row:
            # Kept rows are of this plan or, where its rows are longer than control steps, of the one before.
            kept = self._in_force
            return self._out_of_rows() if kept is None else replace(kept, kind=StepKind.KEEP, splice=None)
        plan.next_row = row + 1
        target = plan.rows[row]
        splice = None
        if plan.follows and self._in_force is not None and self._in_force.target is not None:
            splice = float(np.max(np.abs(target - self._in_force.target)))
        plan.follows = False
        self._row_ns = plan.time_of(row)
        self.executed_steps += 1
        self._in_force = Step(StepKind.ROW, target, row, plan.chunk.sequence, plan.chunk.stamp_ns, splice)
        return self._in_force

    def _out_of_rows(self) -> Step:
        if self._in_force is None:
            return Step(StepKind.WAITING)
        self.starved_steps += 1
        return Step(StepKind.STARVED)
