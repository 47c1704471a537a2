"""What the executor has committed to: rows executed last, and those that will be before a chunk can arrive.

For real-time chunking. The executor tells the policy's side; a policy that takes a prefix holds these rows
fixed and predicts their continuation, so that its chunk joins without a step (``real_time`` in
:mod:`vla_simd_ros.control.blending`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.control.chunk import Rows

_LONGEST_PERIOD_NS = 1_000_000_000_000

_FIELDS = ("epoch", "sequence", "first_row", "start_ns", "period_ns", "executed", "width")


class CommittedError(ValueError):
    """Fields that are no committed rows; names the field, its value and what is expected."""


@dataclass(frozen=True, eq=False)
class CommittedPrefix:
    """Rows one control step apart, of which the first ``executed`` ones have been executed.

    Attributes:
        epoch: the epoch of the rows.
        sequence: the chunk in execution.
        first_row: index in that chunk of the first row that has not been executed yet.
        start_ns: the control step of ``rows[0]``.
        period_ns: the control period.
        executed: how many of the rows have been executed.
        rows: float64 ``[n, joints]``, as planned (limits may have changed the commands).
    """

    epoch: int
    sequence: int
    first_row: int
    start_ns: int
    period_ns: int
    executed: int
    rows: Rows

    def for_query(self, epoch: int, stamp_ns: int, step_ns: int, most: int) -> Rows:
        """The first ``most`` rows of a chunk captured at ``stamp_ns``, as far as they are committed.

        Row i of such a chunk is executed at the first control step at or after its time. None are
        committed in another epoch, and where these rows do not reach back to the capture.
        """
        if epoch != self.epoch or stamp_ns <= self.start_ns - self.period_ns:
            return self.rows[:0]
        count = min(max(0, (self.end_ns - self.period_ns - stamp_ns) // step_ns + 1), most)
        offsets = np.arange(count, dtype=np.int64) * step_ns + (stamp_ns - self.start_ns)
        return self.rows[-(-offsets // self.period_ns)]

    def remaining(self, chunk: Rows, stamp_ns: int, step_ns: int, first: int, most: int) -> Rows:
        """Rows ``first`` to ``most`` of a chunk captured at ``stamp_ns``, as far as the chunk in execution
        (``chunk``, the one of :attr:`sequence`) has rows for their times."""
        first_row_ns = self.start_ns + self.executed * self.period_ns
        times = stamp_ns + np.arange(first, most, dtype=np.int64) * step_ns
        indices = self.first_row + (2 * (times - first_row_ns) + step_ns) // (2 * step_ns)
        return chunk[indices[(indices >= 0) & (indices < len(chunk))]]

    @property
    def end_ns(self) -> int:
        """The control step after the last row."""
        return self.start_ns + len(self.rows) * self.period_ns

    def to_fields(self) -> dict[str, Any]:
        """Plain integers, and the rows as a flat list, for a message."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS if name != "width"}
        return {**fields, "width": int(self.rows.shape[1]), "rows": self.rows.reshape(-1).tolist()}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> CommittedPrefix:
        """The inverse of :meth:`to_fields`. Raises `CommittedError`."""
        numbers = {name: _natural(fields, name) for name in _FIELDS}
        width = numbers.pop("width")
        values = np.asarray(fields.get("rows", ()), dtype=np.float64).reshape(-1)
        if width < 1 or values.size % width:
            raise CommittedError(f"rows: {values.size} values, expected a multiple of the width, {width}")
        if not np.isfinite(values).all():
            raise CommittedError("rows: expected finite values only")
        rows = values.reshape(-1, width)
        if numbers["executed"] > len(rows):
            raise CommittedError(f"executed: {numbers['executed']} of {len(rows)} rows")
        if not 1 <= numbers["period_ns"] <= _LONGEST_PERIOD_NS:
            raise CommittedError(
                f"period_ns: {numbers['period_ns']}, expected 1 to {_LONGEST_PERIOD_NS} nanoseconds"
            )
        return cls(rows=rows, **numbers)


def _natural(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or value < 0:
        raise CommittedError(f"{name}: {value!r}, expected a natural number")
    return value


class ExecutedRows:
    """The rows of the control steps just past, one per step without a gap."""

    def __init__(self, period_ns: int, capacity: int = 512) -> None:
        self._period_ns = period_ns
        self._capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Forget them: what comes next does not continue them."""
        self._rows: list[Rows] = []
        self._last_ns = 0

    def add(self, time_ns: int, row: Rows) -> None:
        """The row in force at a control step; at steps missed before it, the one before stayed in force."""
        if self._rows:
            missed = (time_ns - self._last_ns) // self._period_ns - 1
            self._rows += [self._rows[-1]] * min(missed, self._capacity)
        self._rows.append(row)
        del self._rows[: -self._capacity]
        self._last_ns = time_ns

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Rows]:
        return iter(self._rows)

    @property
    def start_ns(self) -> int:
        """The control step of the first one."""
        return self._last_ns - (len(self._rows) - 1) * self._period_ns
