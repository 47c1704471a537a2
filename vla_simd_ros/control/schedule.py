"""What a policy has to feed: control rate, window, and when queries start; latencies as control steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.timeline import Mode

Seconds = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]

# A product of rate and latency this close above a whole number is that number: rounding of the product.
_DECIMALS = 9


class SupplyError(ValueError):
    """A latency sample or a schedule that cannot be."""


def control_steps(seconds: npt.ArrayLike, rate: float) -> Steps:
    """Control steps that times in seconds take at ``rate`` steps per second, rounded up to whole ones."""
    steps = np.asarray(seconds, dtype=np.float64) * rate
    return np.asarray(np.ceil(np.round(steps, _DECIMALS)), dtype=np.int64)


@dataclass(frozen=True)
class Schedule:
    """When queries start and what their chunks must last for.

    Queries are sequential and start on control ticks, each on an observation captured at its tick. A chunk
    has ``window`` rows, one per control step from the capture on.

    Attributes:
        rate: control steps per second.
        window: rows of a chunk that may be executed, H.
        interval: least number of control steps between two query starts, s; 0: back to back.
        added_s: time from capture to arrival besides the query: camera, transport.

    Raises:
        SupplyError: names the value and what is expected.
    """

    rate: float
    window: int
    interval: int = 0
    added_s: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise SupplyError(f"control rate is {self.rate}, expected a positive number of steps per second")
        if self.window < 1:
            raise SupplyError(f"window is {self.window} rows, expected at least 1")
        if self.interval < 0:
            raise SupplyError(f"query interval is {self.interval} control steps, expected 0 or more")
        if not (math.isfinite(self.added_s) and self.added_s >= 0):
            raise SupplyError(f"added delay is {self.added_s} s, expected 0 or more")


@dataclass(frozen=True, eq=False)
class QuerySteps:
    """Latencies in control steps: the different queries that can occur, each with its probability.

    ``delay`` (d) is from capture to arrival, ``advance`` from the query's start to the next one's start.
    Ordered by ``delay``.
    """

    delay: Steps
    advance: Steps
    weight: npt.NDArray[np.float64]
    counts: Steps
    schedule: Schedule

    @property
    def samples(self) -> int:
        """Latencies in the sample."""
        return int(self.counts.sum())

    @property
    def mean_advance(self) -> float:
        """Mean control steps from query to query."""
        return float(self.weight @ self.advance)

    @property
    def chunks_per_hour(self) -> float:
        """Queries, and so chunks, per hour."""
        return 3600.0 * self.schedule.rate / self.mean_advance

    def carried(self, mode: Mode) -> Steps:
        """Rows of a query's chunk that are spent when the next query starts."""
        return self.advance if mode is Mode.TIME_ALIGNED else self.advance - self.delay

    def reach(self, mode: Mode) -> Steps:
        """Row index at which a chunk's supply ends, or begins where it arrived after its own end."""
        window = np.full_like(self.delay, self.schedule.window)
        return np.maximum(window, self.delay) if mode is Mode.TIME_ALIGNED else window


def checked_latencies(latencies_s: npt.ArrayLike) -> Seconds:
    """The sample as an array. Raises `SupplyError` for an empty one, or one that holds no latency."""
    sample = np.asarray(latencies_s, dtype=np.float64).reshape(-1)
    if not sample.size:
        raise SupplyError("the latency sample is empty, expected at least one latency")
    bad = np.flatnonzero(~(np.isfinite(sample) & (sample >= 0)))
    if bad.size:
        raise SupplyError(
            f"latency {bad[0] + 1} of the sample is {sample[bad[0]]} s, expected a finite number, 0 or more"
        )
    return sample


def query_steps(latencies_s: npt.ArrayLike, schedule: Schedule) -> QuerySteps:
    """A latency sample, in seconds, as queries of the schedule.

    A query takes ceil(f T) steps, its chunk arrives d = ceil(f (T + added)) steps after the capture, and
    the next query starts max(s, ceil(f T), 1) steps after this one. Raises `SupplyError`.
    """
    sample = checked_latencies(latencies_s)
    delay = control_steps(sample + schedule.added_s, schedule.rate)
    advance = np.maximum(control_steps(sample, schedule.rate), max(schedule.interval, 1))
    pairs, counts = np.unique(np.stack([delay, advance], axis=1), axis=0, return_counts=True)
    return QuerySteps(pairs[:, 0], pairs[:, 1], counts / sample.size, counts.astype(np.int64), schedule)
