"""An action chunk as the executor sees it, and the checks its content must pass.

Times are integer nanoseconds on the node's clock. What a chunk must satisfy against other chunks (epoch,
sequence, order of stamps) is checked where they are kept, in :mod:`vla_simd_ros.control.timeline`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.names import repeated, shown

Rows = npt.NDArray[np.float64]

NANOSECONDS = 1_000_000_000

LONGEST_STEP_S = 10.0
"""Longest time between two rows that is believed, seconds; a longer one is a mistake of units."""


LARGEST_VALUE = 1e9
"""Largest position or action that is believed, in its unit; a larger one is damage."""


class RejectReason(str, enum.Enum):
    """Why a chunk was rejected; the value is the name that is counted and published."""

    NOT_FINITE = "not_finite"
    IMPLAUSIBLE = "implausible"
    WRONG_SHAPE = "wrong_shape"
    WRONG_WIDTH = "wrong_width"
    UNKNOWN_JOINT = "unknown_joint"
    MISSING_JOINT = "missing_joint"
    DUPLICATE_JOINT = "duplicate_joint"
    BAD_STEP_PERIOD = "bad_step_period"
    BAD_WINDOW = "bad_window"
    STAMP_ZERO = "stamp_zero"
    STAMP_FUTURE = "stamp_future"
    STAMP_BACKWARDS = "stamp_backwards"
    TOO_OLD = "too_old"
    OLDER_EPOCH = "older_epoch"
    UNKNOWN_EPOCH = "unknown_epoch"
    DUPLICATE_SEQUENCE = "duplicate_sequence"
    SEQUENCE_BACKWARDS = "sequence_backwards"
    EXPIRED = "expired"
    SECOND_PUBLISHER = "second_publisher"


class ChunkRejected(Exception):
    """A chunk that must not be executed.

    Attributes:
        reason: the kind of fault, for counting.
    """

    def __init__(self, reason: RejectReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class RawChunk:
    """The fields of an ``ActionChunk`` message, before any check.

    ``step_period`` is in seconds; ``actions`` is row-major and flat; ``query_ms`` is the total time of the
    query that produced the chunk, ``frozen`` the number of its first rows that were given to the policy.
    """

    stamp_ns: int
    sequence: int
    epoch: int
    action_names: Sequence[str]
    step_period: float
    horizon: int
    window: int
    actions: npt.ArrayLike
    query_ms: float = float("nan")
    frozen: int = 0


@dataclass(frozen=True)
class Chunk:
    """A chunk whose content has been checked; its columns are in the executor's joint order.

    ``rows`` is float64 ``[window, joints]``: only the rows that may be executed. Row i is meant for
    ``stamp_ns + i * step_ns``. The first ``frozen`` rows repeat what was committed when the query started,
    and the others continue them; 0 for a policy that takes no prefix.
    """

    stamp_ns: int
    sequence: int
    epoch: int
    step_ns: int
    rows: Rows
    query_ms: float = float("nan")
    frozen: int = 0

    @property
    def window(self) -> int:
        """Number of rows that may be executed."""
        return int(self.rows.shape[0])

    @property
    def duration_ns(self) -> int:
        """Time that the executable rows last."""
        return self.window * self.step_ns


def check_content(raw: RawChunk, joints: Sequence[str]) -> Chunk:
    """Check everything about a chunk that needs no other chunk, and bring its columns into joint order.

    Raises:
        ChunkRejected: names the field, its value and what was expected.
    """
    order = _column_order(raw.action_names, joints)
    step_ns = _step_ns(raw.step_period)
    if not 1 <= raw.window <= raw.horizon:
        raise ChunkRejected(
            RejectReason.BAD_WINDOW,
            f"chunk {raw.sequence}: window is {raw.window}, expected 1 to the horizon, {raw.horizon}",
        )
    rows = _matrix(raw, len(joints))[: raw.window, order]
    _check_values(raw.sequence, rows, joints)
    return Chunk(raw.stamp_ns, raw.sequence, raw.epoch, step_ns, rows, raw.query_ms, raw.frozen)


def _check_values(sequence: int, rows: Rows, joints: Sequence[str]) -> None:
    magnitude = np.abs(rows)
    for reason, bad, expectation in (
        (RejectReason.NOT_FINITE, ~np.isfinite(rows), "a finite number"),
        (RejectReason.IMPLAUSIBLE, magnitude > LARGEST_VALUE, f"at most {LARGEST_VALUE:g}"),
    ):
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise ChunkRejected(
                reason,
                f"chunk {sequence}: row {row} of joint '{joints[column]}' is {rows[row, column]}, "
                f"expected {expectation}",
            )


def _column_order(names: Sequence[str], joints: Sequence[str]) -> list[int]:
    """Index of each of the executor's joints among the chunk's columns."""
    if duplicates := repeated(names):
        raise ChunkRejected(
            RejectReason.DUPLICATE_JOINT, f"action_names holds {shown(duplicates)} more than once"
        )
    unknown = [name for name in names if name not in joints]
    if unknown:
        raise ChunkRejected(
            RejectReason.UNKNOWN_JOINT,
            f"action_names holds unknown joints {shown(unknown)}, expected {list(joints)}",
        )
    missing = [name for name in joints if name not in names]
    if missing:
        raise ChunkRejected(
            RejectReason.MISSING_JOINT, f"action_names lacks joints {missing}, got {list(names)}"
        )
    return [list(names).index(name) for name in joints]


def _step_ns(step_period: float) -> int:
    step_ns = round(step_period * NANOSECONDS) if 0.0 < step_period <= LONGEST_STEP_S else 0
    if step_ns <= 0:
        raise ChunkRejected(
            RejectReason.BAD_STEP_PERIOD,
            f"step_period is {step_period} s, expected a positive number of at most {LONGEST_STEP_S} s",
        )
    return step_ns


def _matrix(raw: RawChunk, width: int) -> Rows:
    with np.errstate(invalid="ignore"):  # a signalling NaN complains before it is refused by name
        flat = np.asarray(raw.actions, dtype=np.float64).reshape(-1)
    if flat.size == raw.horizon * width:
        return flat.reshape(raw.horizon, width)
    reason = RejectReason.WRONG_SHAPE
    if raw.horizon > 0 and flat.size % raw.horizon == 0:
        reason = RejectReason.WRONG_WIDTH
    raise ChunkRejected(
        reason,
        f"chunk {raw.sequence}: {flat.size} action values, expected horizon x joints = "
        f"{raw.horizon} x {width} = {raw.horizon * width}",
    )
