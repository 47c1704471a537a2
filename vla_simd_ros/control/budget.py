"""Whether a policy keeps a controller supplied: the budgets at each quantile of its latency, and advice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.schedule import Schedule, checked_latencies, control_steps, query_steps
from vla_simd_ros.control.starvation import Starvation, starvation
from vla_simd_ros.control.supply import c1_margin, c2_margin, supply_rate
from vla_simd_ros.control.timeline import Mode

QUANTILES = (0.5, 0.95, 0.99, 0.999)

# A mode is advised when fewer rows run out than this, per hour.
_ACCEPTED_PER_HOUR = 1.0
# With a larger share of the control steps without a row, a mode does not work at all.
_TOLERABLE_SHARE = 0.01


@dataclass(frozen=True)
class Budget:
    """The action-supply conditions for one latency.

    ``delay`` is d, capture to arrival in control steps; the margins are H - d (C1) and H - 2 d (C2), not
    negative where the condition holds. ``rate_*`` is the largest control rate, in steps per second, that
    the window sustains, ``window_*`` the smallest window that sustains the control rate.
    """

    latency_s: float
    delay: int
    c1: int
    c2: int
    rate_lagged: float
    rate_time_aligned: float

    @property
    def window_lagged(self) -> int:
        """Rows that lagged execution needs."""
        return max(1, self.delay)

    @property
    def window_time_aligned(self) -> int:
        """Rows that time-aligned execution needs."""
        return max(1, 2 * self.delay)


@dataclass(frozen=True)
class SupplyForecast:
    """What a latency sample promises: budgets by quantile, supply rate, starvation by mode."""

    schedule: Schedule
    samples: int
    longest_s: float
    correlation: float
    supply_rate: float
    budgets: dict[float, Budget]
    starvation: dict[Mode, Starvation]


def budget(latency_s: float, schedule: Schedule) -> Budget:
    """The conditions for one query latency, in seconds."""
    total = latency_s + schedule.added_s
    delay = int(control_steps(total, schedule.rate))
    window = schedule.window
    return Budget(
        latency_s=latency_s,
        delay=delay,
        c1=int(c1_margin(window, delay)),
        c2=int(c2_margin(window, delay)),
        # d <= n control steps, with d rounded up, is T <= n steps.
        rate_lagged=window / total if total else math.inf,
        rate_time_aligned=(window // 2) / total if total else math.inf,
    )


def forecast(latencies_s: npt.ArrayLike, schedule: Schedule) -> SupplyForecast:
    """Everything that a sample of query latencies, in seconds and in the order measured, promises.

    Quantiles are of the sample, the higher of two latencies where between: the 99.9 % one of fewer than
    1000 is the longest. Raises `SupplyError` for a sample that cannot be.
    """
    sample = checked_latencies(latencies_s)
    at = np.quantile(sample, QUANTILES, method="higher")
    queries = query_steps(sample, schedule)
    return SupplyForecast(
        schedule=schedule,
        samples=sample.size,
        longest_s=float(sample.max()),
        correlation=_correlation(sample),
        supply_rate=supply_rate(schedule.window, float(np.median(sample))),
        budgets={q: budget(float(latency), schedule) for q, latency in zip(QUANTILES, at, strict=True)},
        starvation={mode: starvation(queries, mode) for mode in Mode},
    )


def _correlation(sample: npt.NDArray[np.float64]) -> float:
    """Correlation of each latency with the next one; NaN for a sample without variance."""
    if sample.size < 3 or not np.ptp(sample[:-1]) or not np.ptp(sample[1:]):
        return math.nan
    return float(np.corrcoef(sample[:-1], sample[1:])[0, 1])


def advice(found: SupplyForecast, fewer_steps: bool = False) -> str:
    """What to do, in one sentence; ``fewer_steps``: the policy could take fewer solver steps."""
    schedule, tail = found.schedule, found.budgets[QUANTILES[-1]]
    rate = f"{schedule.rate:g} Hz"
    aligned, lagged = (found.starvation[mode] for mode in (Mode.TIME_ALIGNED, Mode.LAGGED))
    longest_interval = schedule.window - tail.delay
    if aligned.per_hour < _ACCEPTED_PER_HOUR:
        return f"Use time_aligned: as far as measured, it keeps {rate} supplied."
    if tail.c2 >= 0 and schedule.interval > longest_interval:
        return f"Query at least every {longest_interval} control steps: then time_aligned is supplied."
    if lagged.per_hour < _ACCEPTED_PER_HOUR:
        needed = _remedy(Mode.TIME_ALIGNED, found)
        return f"Use lagged: as far as measured, it keeps {rate} supplied; time_aligned would need {needed}."
    for rates in (aligned, lagged):
        if rates.starved_share < _TOLERABLE_SHARE:
            return (
                f"{rates.mode.value} keeps {rate} supplied but for about {rates.per_hour:.3g} slow queries "
                f"an hour: steady the machine, or take {_remedy(rates.mode, found)}."
            )
    return (
        f"Too slow for {rate}: even lagged needs {_remedy(Mode.LAGGED, found)}; "
        f"try {'fewer solver steps, ' if fewer_steps else ''}int8, more threads or a faster machine."
    )


def _remedy(mode: Mode, found: SupplyForecast) -> str:
    """The window or the rate with which even the slowest quantile is supplied."""
    tail = found.budgets[QUANTILES[-1]]
    lagged = mode is Mode.LAGGED
    window = tail.window_lagged if lagged else tail.window_time_aligned
    rate = tail.rate_lagged if lagged else tail.rate_time_aligned
    return (
        f"a window of {window} rows (now {found.schedule.window}) or a control rate of at most {rate:.3g} Hz"
    )
