"""Queries, arrivals and control steps one after the other, with latencies drawn from a sample.

A discrete-event simulation of the model that :mod:`vla_simd_ros.control.starvation` reasons about, without
any of its formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.schedule import Schedule, checked_latencies, control_steps
from vla_simd_ros.control.timeline import Mode

_BATCHES = 20
# 97.5 % quantile of Student's t distribution with one degree of freedom less than there are batches.
_STUDENT = 2.093
_DRAWN_AT_ONCE = 4096


@dataclass(frozen=True)
class Simulated:
    """Counts of a simulated run.

    ``low`` and ``high`` bound the starvations per hour with 95 % confidence (batch means; from a run
    without a starvation, the rule of three). The mean age is that of the observation behind each row, in
    control steps, when the row is executed.
    """

    hours: float
    chunks: int
    starvations: int
    starved_steps: int
    executed_steps: int
    stale_rows: int
    mean_age_steps: float
    busy_share: float
    low: float
    high: float

    @property
    def per_hour(self) -> float:
        """Starvations per hour."""
        return self.starvations / self.hours

    @property
    def starved_share(self) -> float:
        """Share of the control steps that found no row."""
        return self.starved_steps / (self.starved_steps + self.executed_steps)


@dataclass
class _Counts:
    chunks: int = 0
    starvations: int = 0
    starved: int = 0
    executed: int = 0
    stale: int = 0
    age: int = 0
    busy: float = 0.0


def simulate(
    latencies_s: npt.ArrayLike, schedule: Schedule, mode: Mode, hours: float, seed: int = 0
) -> Simulated:
    """Run for ``hours`` of control steps from the first chunk's arrival on.

    Raises `SupplyError` for a sample that cannot be.
    """
    run = _Run(checked_latencies(latencies_s), schedule, mode, np.random.default_rng(seed))
    steps = max(_BATCHES, round(hours * 3600.0 * schedule.rate))
    batches = [run.until(steps * (i + 1) // _BATCHES) for i in range(_BATCHES)]
    total = run.counts
    hours = steps / (3600.0 * schedule.rate)
    low, high = _interval(np.array(batches, dtype=np.float64) * _BATCHES / hours, hours)
    return Simulated(
        hours=hours,
        chunks=total.chunks,
        starvations=total.starvations,
        starved_steps=total.starved,
        executed_steps=total.executed,
        stale_rows=total.stale,
        mean_age_steps=total.age / total.executed if total.executed else math.nan,
        busy_share=total.busy * schedule.rate / steps,
        low=low,
        high=high,
    )


def _interval(rates: npt.NDArray[np.float64], hours: float) -> tuple[float, float]:
    if not rates.any():
        return 0.0, 3.0 / hours
    half = _STUDENT * float(rates.std(ddof=1)) / math.sqrt(len(rates))
    return max(0.0, float(rates.mean()) - half), float(rates.mean()) + half


class _Run:
    """One robot: the chunk in execution, and the query that is running."""

    def __init__(
        self,
        sample: npt.NDArray[np.float64],
        schedule: Schedule,
        mode: Mode,
        rng: np.random.Generator,
    ) -> None:
        self._sample = sample
        self._busy_steps = control_steps(sample, schedule.rate)
        self._delay_steps = control_steps(sample + schedule.added_s, schedule.rate)
        self._schedule = schedule
        self._aligned = mode is Mode.TIME_ALIGNED
        self._rng = rng
        self._picks: list[int] = []
        self.counts = _Counts()
        self._capture = 0
        self._arrival = 0
        self._query(0)
        # Time counts from the first arrival on.
        self._begin = self._step = self._arrival
        self._take_over()

    def until(self, steps: int) -> int:
        """Go on to so many control steps after the first arrival; starvations that began on the way."""
        before, end = self.counts.starvations, self._begin + steps
        while self._step < end:
            self._play(min(self._arrival, end))
            if self._step == self._arrival:
                self._take_over()
        return self.counts.starvations - before

    def _query(self, start: int) -> None:
        """Start a query at a control step, on the observation of that step."""
        if not self._picks:
            self._picks = self._rng.integers(0, len(self._sample), _DRAWN_AT_ONCE).tolist()
        pick = self._picks.pop()
        self._capture = start
        self._arrival = start + int(self._delay_steps[pick])
        self._next_start = max(start + max(self._schedule.interval, 1), start + int(self._busy_steps[pick]))
        self.counts.busy += float(self._sample[pick])

    def _take_over(self) -> None:
        """The chunk that arrives now is in execution from this step on; the next query has been started."""
        self.counts.chunks += 1
        window = self._schedule.window
        self._origin = self._capture if self._aligned else self._step
        self._age_at_origin = self._origin - self._capture
        self.counts.stale += min(self._step - self._origin, window)
        self._end = self._origin + window
        self._starving = False
        self._query(self._next_start)

    def _play(self, until: int) -> None:
        """Execute the control steps before ``until`` with the chunk in execution."""
        stop = min(max(self._end, self._step), until)
        rows = stop - self._step
        first = self._step - self._origin
        self.counts.executed += rows
        self.counts.age += rows * (first + self._age_at_origin) + rows * (rows - 1) // 2
        missing = until - stop
        if missing:
            self.counts.starvations += not self._starving
            self.counts.starved += missing
            self._starving = True
        self._step = until
