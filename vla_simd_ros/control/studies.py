"""Two studies of chunked control: what an added delay does, and what the execution horizon does.

They answer for supply, freshness and computing time what the studies of vla.cpp (Section IV-G) ask of task
success. A delay is added after the query, before the chunk is delivered: it stands for slower inference, so
the next query waits for it, as it does in the policy node (``inject_delay``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.schedule import Schedule, SupplyError, checked_latencies, query_steps
from vla_simd_ros.control.starvation import Starvation, starvation
from vla_simd_ros.control.supply_simulation import Simulated, simulate
from vla_simd_ros.control.timeline import Mode

DELAYS_MS = (0.0, 150.0, 330.0, 530.0, 1000.0, 2000.0)
"""The delays of vla.cpp's Table VIII."""

_MS = 1e-3


@dataclass(frozen=True)
class Blocking:
    """A robot that executes S rows of each chunk, then stands and waits for the next one.

    Times in seconds, rates in actions per second. ``throughput`` S / L counts inference alone,
    ``executed_rate`` S / (L + S dt) the robot's time too; ``blocked_share`` of the time it stands. The
    observation of a row is ``first_age`` old at the first row of a chunk, ``last_age`` at its last one.
    """

    horizon: int
    latency: float
    latency_p95: float
    throughput: float
    executed_rate: float
    blocked_share: float
    first_age: float
    last_age: float


def blocking(latencies_s: npt.ArrayLike, rate: float, horizon: int) -> Blocking:
    """Synchronous control with an execution horizon. Raises `SupplyError`.

    Rates are those of the mean latency, which decides them in the long run; ``latency`` and ``throughput``
    are of the median, as printed in such studies.
    """
    sample = checked_latencies(latencies_s)
    schedule = Schedule(rate, horizon)
    mean, median = float(sample.mean()), float(np.median(sample))
    motion = schedule.window / schedule.rate
    return Blocking(
        horizon=horizon,
        latency=median,
        latency_p95=float(np.quantile(sample, 0.95, method="higher")),
        throughput=horizon / median if median else float("inf"),
        executed_rate=horizon / (mean + motion),
        blocked_share=mean / (mean + motion),
        first_age=mean,
        last_age=mean + (horizon - 1) / rate,
    )


@dataclass(frozen=True)
class Overlapping:
    """A robot that queries while it moves, in one mode of execution: prediction and simulated run."""

    schedule: Schedule
    predicted: Starvation
    simulated: Simulated


@dataclass(frozen=True)
class DelayResult:
    """One added delay: the robot that waits, and the one that overlaps in either mode."""

    delay_s: float
    waiting: Blocking
    overlapping: dict[Mode, Overlapping]


def delay_study(
    latencies_s: npt.ArrayLike,
    schedule: Schedule,
    horizon: int,
    delays_ms: Sequence[float] = DELAYS_MS,
    hours: float = 1.0,
) -> list[DelayResult]:
    """Supply with each delay added between the query's end and the arrival of its chunk.

    ``horizon`` rows of each chunk are executed by the robot that waits; ``schedule`` is that of the one that
    overlaps, and may have a delay of its own. Raises `SupplyError` for a sample or a delay that cannot be.
    """
    sample = checked_latencies(latencies_s)
    return [
        DelayResult(
            delay_s=delay * _MS,
            waiting=blocking(sample + schedule.added_s + delay * _MS, schedule.rate, horizon),
            overlapping=_overlapping(sample + delay * _MS, schedule, hours),
        )
        for delay in _checked_delays(delays_ms)
    ]


@dataclass(frozen=True)
class HorizonResult:
    """One execution horizon: the robot that waits, and the one that overlaps in either mode."""

    horizon: int
    waiting: Blocking
    overlapping: dict[Mode, Overlapping]


def horizon_study(
    latencies_s: npt.ArrayLike, schedule: Schedule, horizons: Sequence[int], hours: float = 1.0
) -> list[HorizonResult]:
    """Supply when only the first S of the window's rows are executed, for each S. Raises `SupplyError`."""
    sample = checked_latencies(latencies_s)
    for horizon in horizons:
        if not 1 <= horizon <= schedule.window:
            raise SupplyError(
                f"execution horizon is {horizon} rows, expected 1 to the window, {schedule.window}"
            )
    return [
        HorizonResult(
            horizon=horizon,
            waiting=blocking(sample + schedule.added_s, schedule.rate, horizon),
            overlapping=_overlapping(sample, replace(schedule, window=horizon), hours),
        )
        for horizon in horizons
    ]


def _overlapping(
    sample: npt.NDArray[np.float64], schedule: Schedule, hours: float
) -> dict[Mode, Overlapping]:
    queries = query_steps(sample, schedule)
    return {
        mode: Overlapping(schedule, starvation(queries, mode), simulate(sample, schedule, mode, hours))
        for mode in Mode
    }


def _checked_delays(delays_ms: Sequence[float]) -> Sequence[float]:
    for delay in delays_ms:
        if not (np.isfinite(delay) and delay >= 0):
            raise SupplyError(f"added delay is {delay} ms, expected 0 or more")
    return delays_ms
