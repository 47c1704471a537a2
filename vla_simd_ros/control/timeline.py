"""Which row of which chunk a control step executes.

Control steps lie on a grid of one control period. A chunk's rows lie on their own times: from its capture
time in time-aligned execution, from the control step that took it over in lagged execution. A control step
executes the newest row whose time has come, every row at most once; rows whose time passed before they
could be executed are dropped and counted.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.control.blending import Blending
from vla_simd_ros.control.chunk import Chunk, ChunkRejected, RejectReason, Rows


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


@dataclass
class _Playing:
    """A chunk in execution: the time its row 0 is meant for, and the next row that may be executed."""

    chunk: Chunk
    origin_ns: int
    next_row: int = 0

    def row_at(self, time_ns: int) -> int:
        return (time_ns - self.origin_ns) // self.chunk.step_ns


class ChunkTimeline:
    """The chunks of the present epoch, and the row for each control step.

    Args:
        mode: lagged or time-aligned.
        period_ns: the control period.
        blending: how the chunks' rows for one step are joined.
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
        self._played: deque[_Playing] = deque(maxlen=blending.keep)
        self.clock_jumped()

    def clock_jumped(self) -> None:
        """Forget all times: rows, sequence and stamps of the present epoch, and the last control step."""
        self._time_ns: int | None = None
        self._last_sequence: int | None = None
        self._last_stamp_ns: int | None = None
        self.clear_rows()

    def start_epoch(self, epoch: int) -> None:
        """Drop the rows of the epoch before; nothing is due until the new epoch's first chunk arrives."""
        self.epoch = epoch
        self._last_sequence = None
        self._last_stamp_ns = None
        self.clear_rows()

    def clear_rows(self) -> None:
        """Drop the rows and keep epoch, sequence and stamps: after a hold, only a new chunk restarts."""
        self._played.clear()
        self._arrived: Chunk | None = None
        self._target: Rows | None = None
        self._since_splice = 0
        self._started = False

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
        self._arrived = chunk

    def advance(self, time_ns: int) -> Step:
        """What to do at the control step meant for ``time_ns``.

        Raises:
            ValueError: time did not go forwards; after a jump of the clock call :meth:`clock_jumped` first.
        """
        if self._time_ns is not None and time_ns <= self._time_ns:
            raise ValueError(f"control step at {time_ns} ns, expected one after {self._time_ns} ns")
        self._time_ns = time_ns
        spliced = self._take_over(time_ns)
        return self._execute(time_ns, spliced)

    def buffered_steps(self) -> int:
        """Control steps for which a row is still there, counted after the last one executed."""
        next_ns = (self._time_ns or 0) + self._period_ns
        if self._arrived is not None:
            origin_ns = self._arrived.stamp_ns if self.mode is Mode.TIME_ALIGNED else next_ns
            end_ns = origin_ns + self._arrived.duration_ns
        elif self._played:
            end_ns = self._played[-1].origin_ns + self._played[-1].chunk.duration_ns
        else:
            return 0
        return max(0, -(-(end_ns - next_ns) // self._period_ns))

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

    def _take_over(self, time_ns: int) -> bool:
        """Put the chunk that arrived in execution if its first row is due; true if it follows another."""
        chunk = self._arrived
        if chunk is None:
            return False
        origin_ns = chunk.stamp_ns if self.mode is Mode.TIME_ALIGNED else time_ns
        if origin_ns > time_ns:
            return False
        self._arrived = None
        self._played.append(_Playing(chunk, origin_ns))
        self._since_splice = 0
        return self._target is not None

    def _execute(self, time_ns: int, spliced: bool) -> Step:
        if not self._played:
            return self._out_of_rows()
        newest = self._played[-1]
        row = newest.row_at(time_ns)
        self.stale_rows += max(0, min(row, newest.chunk.window) - newest.next_row)
        if row >= newest.chunk.window:
            newest.next_row = newest.chunk.window
            return self._out_of_rows()
        if row < newest.next_row:
            return Step(StepKind.KEEP, self._target, row, newest.chunk.sequence, newest.chunk.stamp_ns)
        newest.next_row = row + 1
        target = self._blending.combine([_row(p, time_ns) for p in self._played], self._since_splice)
        splice = None
        if spliced and self._target is not None:
            splice = float(np.max(np.abs(target - self._target)))
        self._since_splice += 1
        self._target = target
        self._started = True
        self.executed_steps += 1
        return Step(StepKind.ROW, target, row, newest.chunk.sequence, newest.chunk.stamp_ns, splice)

    def _out_of_rows(self) -> Step:
        if not self._started:
            return Step(StepKind.WAITING)
        self.starved_steps += 1
        return Step(StepKind.STARVED)


def _row(playing: _Playing, time_ns: int) -> Rows:
    """The chunk's row for a time; its last row after it has run out."""
    row = min(playing.row_at(time_ns), playing.chunk.window - 1)
    rows: Rows = playing.chunk.rows[row]
    return rows
