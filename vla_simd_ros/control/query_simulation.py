"""A robot with a camera, a policy and a chunk timeline, to compare when to query: times are simulated.

Unlike :mod:`vla_simd_ros.control.supply_simulation`, this runs the code that decides and executes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.control.blending import Replace
from vla_simd_ros.control.chunk import Chunk, ChunkRejected
from vla_simd_ros.control.query_timing import Moment, QueryTimer
from vla_simd_ros.control.timeline import ChunkTimeline, Mode, StepKind

_START_NS = 1_000_000_000
_OLDEST_NS = 1 << 62


@dataclass(frozen=True)
class QueryCourse:
    """What a run came to; ages in control steps, from capture to the control step that executes the row.

    ``first_age`` is the mean age at the first row that is executed of each chunk, ``mean_age`` that over all
    rows. ``busy_share`` is the share of the time that the engine computes.
    """

    steps: int
    executed: int
    starved: int
    queries: int
    busy_share: float
    first_age: float
    mean_age: float


def run_queries(
    timer: QueryTimer,
    latency_ns: Callable[[int], int],
    mode: Mode,
    period_ns: int,
    window: int,
    steps: int,
    transport_ns: int = 0,
) -> QueryCourse:
    """Run for ``steps`` control steps, with an observation captured at each of them.

    Args:
        timer: decides at each observation, once the engine is free; is told the delays.
        latency_ns: time that query number i, counted from 1, takes in the engine.
        mode: execution mode.
        period_ns: the control period.
        window: rows of a chunk, one control step apart.
        steps: control steps to run.
        transport_ns: from the engine's end to the arrival of the chunk.
    """
    run = _Run(mode, period_ns, window, transport_ns)
    for i in range(steps):
        capture_ns = _START_NS + i * period_ns
        run.control_step(capture_ns, timer)
        start_ns = max(capture_ns, run.free_ns)
        # An observation that the engine gets to later than that has a newer one beside it.
        moment = Moment(capture_ns, capture_ns + period_ns, run.rows_end_ns)
        if start_ns < moment.next_capture_ns and timer.due(moment):
            run.query(capture_ns, start_ns, latency_ns(run.queries + 1))
    return run.course(steps)


class _Run:
    """The timeline, the chunks on their way to it, and the engine."""

    def __init__(self, mode: Mode, period_ns: int, window: int, transport_ns: int) -> None:
        self._period_ns = period_ns
        self._window = window
        self._transport_ns = transport_ns
        self._line = ChunkTimeline(mode, period_ns, Replace(), 0, _OLDEST_NS)
        self._line.start_epoch(1)
        self._flying: list[tuple[int, Chunk]] = []
        self._ages: list[int] = []
        self._first_ages: list[int] = []
        self._sequence = 0
        self._busy_ns = 0
        self.free_ns = 0
        self.rows_end_ns: int | None = None
        self.queries = 0

    def control_step(self, now_ns: int, timer: QueryTimer) -> None:
        """Take what has arrived, and execute."""
        while self._flying and self._flying[0][0] <= now_ns:
            arrival_ns, chunk = self._flying.pop(0)
            timer.arrived(arrival_ns - chunk.stamp_ns)
            # One that is too late for all of its rows is the starvation that the timeline counts.
            with contextlib.suppress(ChunkRejected):
                self._line.add(chunk, arrival_ns)
        step = self._line.advance(now_ns)
        if step.kind is StepKind.ROW:
            self._ages.append(now_ns - step.stamp_ns)
            if step.sequence != self._sequence:
                self._first_ages.append(self._ages[-1])
            self._sequence = step.sequence

    def query(self, capture_ns: int, start_ns: int, latency_ns: int) -> None:
        """Run a query; its chunk arrives later."""
        self.queries += 1
        self._busy_ns += latency_ns
        self.free_ns = start_ns + latency_ns
        arrival_ns = self.free_ns + self._transport_ns
        chunk = Chunk(capture_ns, self.queries, 1, self._period_ns, np.zeros((self._window, 1)))
        self._flying.append((arrival_ns, chunk))
        origin_ns = capture_ns if self._line.mode is Mode.TIME_ALIGNED else arrival_ns
        self.rows_end_ns = origin_ns + chunk.duration_ns

    def course(self, steps: int) -> QueryCourse:
        """What the run came to."""
        return QueryCourse(
            steps=steps,
            executed=self._line.executed_steps,
            starved=self._line.starved_steps,
            queries=self.queries,
            busy_share=self._busy_ns / (steps * self._period_ns),
            first_age=float(np.mean(self._first_ages)) / self._period_ns if self._ages else math.nan,
            mean_age=float(np.mean(self._ages)) / self._period_ns if self._ages else math.nan,
        )
