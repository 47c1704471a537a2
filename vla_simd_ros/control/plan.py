"""The plan in execution: a chunk, joined with those before it, on its own times."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.blending import Blending, Splice
from vla_simd_ros.control.chunk import Chunk, Rows


@dataclass(frozen=True, eq=False)
class Ahead:
    """What is planned from a control step on: ``rows`` float64 ``[n, joints]`` with their times."""

    times_ns: npt.NDArray[np.int64]
    rows: Rows


@dataclass
class Plan:
    """Rows to execute, row i from ``origin_ns + i * chunk.step_ns`` on until the next one's time.

    ``joined`` counts the chunks behind each row. ``next_row`` is the first one that may still be executed.
    """

    chunk: Chunk
    origin_ns: int
    rows: Rows
    joined: npt.NDArray[np.int64]
    next_row: int = 0
    follows: bool = field(default=False)
    """The first row executed is a splice: another chunk's row was executed before."""

    def ahead(self, time_ns: int) -> Ahead:
        """The row in force at a time, and those after it."""
        first = max(self.next_row - 1, self.row_at(time_ns), 0)
        rows = self.rows[first:]
        return Ahead(self.time_of(first) + np.arange(len(rows), dtype=np.int64) * self.chunk.step_ns, rows)

    def row_at(self, time_ns: int) -> int:
        """Index of the row in force at a time; beyond the last one after the plan has run out."""
        return (time_ns - self.origin_ns) // self.chunk.step_ns

    def time_of(self, row: int) -> int:
        """The time that a row is meant for."""
        return self.origin_ns + row * self.chunk.step_ns

    @property
    def end_ns(self) -> int:
        """The time from which on the plan has no row."""
        return self.origin_ns + self.chunk.duration_ns


def new_plan(
    chunk: Chunk, origin_ns: int, before: Plan | None, time_ns: int, period_ns: int, blending: Blending
) -> Plan:
    """The plan that a chunk makes of the one ``before``, taking over at the control step ``time_ns``.

    The chunk has a row for that step.
    """
    plan = Plan(chunk, origin_ns, chunk.rows, np.ones(chunk.window, np.int64))
    if before is None:
        return plan
    first = plan.row_at(time_ns)
    # Each row is executed at the first control step that is not before its time, counted from this one.
    offsets = np.arange(first, chunk.window, dtype=np.int64) * chunk.step_ns + (origin_ns - time_ns)
    steps = np.maximum(0, -(-offsets // period_ns))
    old = (steps * period_ns + (time_ns - before.origin_ns)) // before.chunk.step_ns
    covered = old < before.chunk.window
    old = np.minimum(old, before.chunk.window - 1)
    splice = Splice(
        old=before.rows[old],
        new=chunk.rows[first:],
        covered=covered,
        joined=before.joined[old],
        steps=steps,
        continued=chunk.frozen > 0 and first <= chunk.frozen,
    )
    plan.rows = chunk.rows.copy()
    plan.rows[first:] = blending.join(splice)
    plan.joined[first:] += np.where(covered, splice.joined, 0)
    return plan
