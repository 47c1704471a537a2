"""Action supply: whether chunks arrive fast enough to keep a controller fed, from measured delays.

A controller consumes one row every control period. A chunk gives ``H`` rows, counted in control steps from
its capture time. With ``d`` the delay from capture time to arrival and sequential queries, both in control
steps: lagged execution can be supplied when d <= H (C1), time-aligned execution when 2 d <= H (C2).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.control.timeline import Mode

NAN = float("nan")


def delay_steps(delay_ns: int, period_ns: int) -> int:
    """Control steps that a delay takes, rounded up to whole steps."""
    return -(-delay_ns // period_ns)


def c1_margin(window: float, delay: float) -> float:
    """Steps by which C1 holds (negative: fails); window and delay in control steps."""
    return window - delay


def c2_margin(window: float, delay: float) -> float:
    """Steps by which C2 holds (negative: fails); window and delay in control steps."""
    return window - 2.0 * delay


def supply_rate(rows: int, query_s: float) -> float:
    """Actions per second f_eff = H / T_q; NaN when the query time is not known."""
    return rows / query_s if query_s > 0.0 else NAN


def starvation_probability(
    delays_s: np.ndarray, intervals_s: np.ndarray, window_s: float, mode: Mode
) -> float:
    """Probability, per chunk, that its rows run out before the next chunk arrives.

    Lagged: the next chunk arrives one interval after this one, so P(interval > window). Time-aligned: this
    chunk has used up its own delay on arrival, so P(delay + interval > window), with delay and interval
    taken as independent: every measured delay is paired with every measured interval. The estimate is
    resolved to one part in the number of pairs, and does not foresee delays longer than those measured.

    Args:
        delays_s: capture time to arrival, ``[n]`` seconds.
        intervals_s: arrival to next arrival, ``[m]`` seconds.
        window_s: seconds that the rows of one chunk last.
        mode: execution mode.
    """
    if not len(delays_s) or not len(intervals_s):
        return NAN
    if mode is Mode.LAGGED:
        return float(np.mean(intervals_s > window_s))
    ordered = np.sort(intervals_s)
    late = len(ordered) - np.searchsorted(ordered, window_s - delays_s, side="right")
    return float(np.mean(late) / len(ordered))


@dataclass(frozen=True)
class Supply:
    """The measured supply; everything in control steps but the rate (actions/s). NaN: not known yet."""

    delay_median: float = NAN
    delay_p95: float = NAN
    delay_p99: float = NAN
    interval_median: float = NAN
    c1: float = NAN
    c2: float = NAN
    c1_p99: float = NAN
    c2_p99: float = NAN
    rate: float = NAN
    starvation: float = NAN


class SupplyMonitor:
    """Collects the delays of the most recent chunks.

    Args:
        period_ns: the control period.
        capacity: number of recent chunks the report is about.
    """

    def __init__(self, period_ns: int, capacity: int = 512) -> None:
        self._period_ns = period_ns
        self._delays: deque[int] = deque(maxlen=capacity)
        self._intervals: deque[int] = deque(maxlen=capacity)
        self._queries_ms: deque[float] = deque(maxlen=capacity)
        self._last_arrival_ns: int | None = None
        self._rows = 0
        self._window_ns = 0

    def arrived(self, stamp_ns: int, now_ns: int, rows: int, step_ns: int, query_ms: float) -> None:
        """Record an accepted chunk of ``rows`` executable rows."""
        self._delays.append(max(0, now_ns - stamp_ns))
        if self._last_arrival_ns is not None:
            self._intervals.append(now_ns - self._last_arrival_ns)
        if math.isfinite(query_ms):
            self._queries_ms.append(query_ms)
        self._last_arrival_ns = now_ns
        self._rows = rows
        self._window_ns = rows * step_ns

    def interrupted(self) -> None:
        """The next arrival does not end an interval: a new epoch, a hold, a clock jump."""
        self._last_arrival_ns = None

    def delay_ns(self, quantile: float) -> int | None:
        """The delay that a share ``quantile`` of the recent chunks did not exceed; None without chunks."""
        if not self._delays:
            return None
        return int(np.quantile(np.array(self._delays), quantile, method="higher"))

    def report(self, mode: Mode) -> Supply:
        """The supply over the recent chunks. Percentiles are of whole steps, the higher one where between."""
        if not self._delays:
            return Supply()
        steps = np.array([delay_steps(delay, self._period_ns) for delay in self._delays])
        median, p95, p99 = (float(v) for v in np.percentile(steps, (50, 95, 99), method="higher"))
        window = self._window_ns // self._period_ns
        intervals = np.array(self._intervals, dtype=np.float64)
        return Supply(
            delay_median=median,
            delay_p95=p95,
            delay_p99=p99,
            interval_median=float(np.median(intervals)) / self._period_ns if len(intervals) else NAN,
            c1=c1_margin(window, median),
            c2=c2_margin(window, median),
            c1_p99=c1_margin(window, p99),
            c2_p99=c2_margin(window, p99),
            rate=supply_rate(self._rows, float(np.median(self._queries_ms)) * 1e-3)
            if self._queries_ms
            else NAN,
            starvation=starvation_probability(
                np.array(self._delays) * 1e-9, intervals * 1e-9, self._window_ns * 1e-9, mode
            ),
        )
