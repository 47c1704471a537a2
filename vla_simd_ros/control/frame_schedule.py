"""Supply by the nodes as they run: queries start on camera frames, rows are executed on control ticks.

Unlike the model of :mod:`vla_simd_ros.control.starvation`, where everything happens on control ticks, a query
starts when the engine is free: at once, on the newest frame, where that has not been used yet, else as the
next frame arrives. So an observation is up to a frame old when its query starts, and a query's start lies
anywhere between two ticks. How the ticks lie to the frames is not known beforehand: each run draws it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.schedule import Seconds, SupplyError
from vla_simd_ros.control.timeline import Mode

Draw = Callable[[np.random.Generator, int], Seconds]
"""Makes so many times in seconds, in the order in which they occur."""

# As in the exact model: a time this close to a tick or to a row's begin is that one.
_TOLERANCE = 1e-9
_DRAWN_AT_ONCE = 256


@dataclass(frozen=True)
class FrameSchedule:
    """Rates and fixed times of the nodes.

    Attributes:
        camera_rate: frames per second.
        control_rate: control steps per second.
        window: rows of a chunk that may be executed, H.
        step_s: time from row to row of a chunk.
        ready_s: from a frame's capture until a query can start on it.
        transport_s: from a query's end to the arrival of its chunk at the executor.

    Raises:
        SupplyError: names the value and what is expected.
    """

    camera_rate: float
    control_rate: float
    window: int
    step_s: float
    ready_s: float = 0.0
    transport_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("camera_rate", "control_rate", "step_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SupplyError(f"{name} is {value}, expected above 0")
        for name in ("ready_s", "transport_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SupplyError(f"{name} is {value} s, expected 0 or more")
        if self.window < 1:
            raise SupplyError(f"window is {self.window} rows, expected at least 1")


@dataclass
class SupplyCounts:
    """What happened in a run; ages in seconds, summed over executed rows, and over each chunk's first one."""

    chunks: int = 0
    taken_over: int = 0
    executed: int = 0
    starved: int = 0
    stale: int = 0
    age_s: float = 0.0
    first_age_s: float = 0.0
    busy_s: float = 0.0

    @property
    def starved_share(self) -> float:
        """Share of the control steps that found no row; NaN without control steps."""
        steps = self.executed + self.starved
        return self.starved / steps if steps else math.nan

    @property
    def mean_age_s(self) -> float:
        """Age of the observation behind a row when it is executed."""
        return self.age_s / self.executed if self.executed else math.nan

    @property
    def mean_first_age_s(self) -> float:
        """The same at the first executed row of a chunk."""
        return self.first_age_s / self.taken_over if self.taken_over else math.nan


@dataclass(frozen=True)
class Expected:
    """A quantity's mean over runs, and the interval that the middle ones of the runs lie in."""

    mean: float
    low: float
    high: float

    def covers(self, value: float) -> bool:
        """Whether a measured value lies within the interval."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class SupplyPrediction:
    """What a run of some seconds will count; `SupplyCounts` says what each means."""

    seconds: float
    starved_share: Expected
    starved: Expected
    stale: Expected
    chunks: Expected
    mean_age_s: Expected
    mean_first_age_s: Expected


def predict_supply(
    query_s: Draw,
    schedule: FrameSchedule,
    mode: Mode,
    seconds: float,
    runs: int = 200,
    seed: int = 0,
    confidence: float = 0.95,
) -> SupplyPrediction:
    """Simulate so many runs of ``seconds`` each.

    Args:
        query_s: time from each query's start to its end.
        schedule: the nodes' rates and times.
        mode: execution mode.
        seconds: length of a run.
        runs: how many; each has frames and ticks in another phase.
        seed: of the random numbers.
        confidence: share of the runs that the intervals hold.
    """
    rng = np.random.default_rng(seed)
    counts = [run_frames(query_s, schedule, mode, seconds, rng) for _ in range(runs)]

    def expected(name: str) -> Expected:
        values = np.array([getattr(count, name) for count in counts], dtype=np.float64)
        known = values[np.isfinite(values)]
        if not known.size:
            return Expected(math.nan, math.nan, math.nan)
        low, high = np.quantile(known, (0.5 - confidence / 2, 0.5 + confidence / 2))
        return Expected(float(known.mean()), float(low), float(high))

    names = ("starved_share", "starved", "stale", "chunks", "mean_age_s", "mean_first_age_s")
    return SupplyPrediction(seconds, **{name: expected(name) for name in names})


def run_frames(
    query_s: Draw, schedule: FrameSchedule, mode: Mode, seconds: float, rng: np.random.Generator
) -> SupplyCounts:
    """One run: ``seconds`` that begin some time after the first chunk's arrival."""
    return _Run(query_s, schedule, mode, seconds, rng).counts


class _Run:
    """The chunk in execution, the engine, and the next control tick; tick n is at (n + phase) periods."""

    def __init__(
        self, query_s: Draw, schedule: FrameSchedule, mode: Mode, seconds: float, rng: np.random.Generator
    ) -> None:
        self._query_s = query_s
        self._schedule = schedule
        self._aligned = mode is Mode.TIME_ALIGNED
        self._rng = rng
        self._drawn: list[float] = []
        self._phase = float(rng.random())
        self._frame = -1
        self._free_s = 0.0
        self.counts = SupplyCounts()
        capture_s, arrival_s = self._query()
        self._tick = self._end = self._tick_from(arrival_s)
        # Whoever counts begins somewhere between two chunks.
        begin = self._tick + int(rng.integers(1, 2 * schedule.window + 1))
        last = begin + round(seconds * schedule.control_rate)
        while True:
            self._take_over(capture_s)
            following_s, arrival_s = self._query()
            until = self._tick_from(arrival_s)
            if self._tick < begin <= until:
                self._play(capture_s, begin)
                self.counts = SupplyCounts()
            self._play(capture_s, min(until, last))
            capture_s = following_s
            if self._tick >= last:
                return

    def _query(self) -> tuple[float, float]:
        """Capture and arrival of the next query's chunk."""
        schedule = self._schedule
        newest = math.floor((self._free_s - schedule.ready_s) * schedule.camera_rate + _TOLERANCE)
        self._frame = max(newest, self._frame + 1)
        capture_s = self._frame / schedule.camera_rate
        start_s = max(self._free_s, capture_s + schedule.ready_s)
        spent_s = self._next_time()
        self._free_s = start_s + spent_s
        self._spent_s = spent_s
        return capture_s, self._free_s + schedule.transport_s

    def _next_time(self) -> float:
        if not self._drawn:
            self._drawn = self._query_s(self._rng, _DRAWN_AT_ONCE).tolist()[::-1]
        return self._drawn.pop()

    def _tick_from(self, time_s: float) -> int:
        """The first control tick that is not before a time."""
        return math.ceil(time_s * self._schedule.control_rate - self._phase - _TOLERANCE)

    def _time_of(self, tick: int) -> float:
        return (tick + self._phase) / self._schedule.control_rate

    def _take_over(self, capture_s: float) -> None:
        """The chunk has arrived and is in execution from this tick on."""
        schedule, now_s = self._schedule, self._time_of(self._tick)
        origin_s = capture_s if self._aligned else now_s
        first = math.floor((now_s - origin_s) / schedule.step_s + _TOLERANCE)
        self._fresh = True
        self.counts.chunks += 1
        self.counts.stale += min(first, schedule.window)
        self.counts.busy_s += self._spent_s
        self._end = self._tick_from(origin_s + schedule.window * schedule.step_s)

    def _play(self, capture_s: float, until: int) -> None:
        """Execute the ticks before ``until``, at which the next chunk takes over or the run ends."""
        stop = min(max(self._end, self._tick), until)
        rows = stop - self._tick
        if rows:
            first_age_s = self._time_of(self._tick) - capture_s
            if self._fresh:
                self.counts.taken_over += 1
                self.counts.first_age_s += first_age_s
            self._fresh = False
            self.counts.executed += rows
            self.counts.age_s += rows * (first_age_s + 0.5 * (rows - 1) / self._schedule.control_rate)
        self.counts.starved += until - stop
        self._tick = until


def in_measured_order(sample_s: npt.ArrayLike) -> Draw:
    """Times as they followed each other in a measurement, from anywhere in it on, and round again.

    Unlike independent draws this keeps the slow phases of a machine together.
    """
    sample = np.asarray(sample_s, dtype=np.float64).reshape(-1)
    if not sample.size or not np.isfinite(sample).all() or (sample < 0).any():
        raise SupplyError(
            f"a sample of {sample.size} times, expected finite ones of 0 s or more, at least one"
        )

    def draw(rng: np.random.Generator, count: int) -> Seconds:
        return np.resize(np.roll(sample, -int(rng.integers(len(sample)))), count)

    return draw
