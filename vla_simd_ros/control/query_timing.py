"""When to start the next query: at once, when the buffer is low, or as late as measured delays allow.

Asked at every observation. Free of clocks and threads: all times are passed in.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

# The reserve is the longest of so many delays, and is believed from so many on.
_DELAYS = 512
_ENOUGH_DELAYS = 50


class QueryPacing(str, enum.Enum):
    """When queries start."""

    CONTINUOUS = "continuous"
    """Back to back, each on the newest observation."""
    ON_DEMAND = "on_demand"
    """When no more control steps than a threshold have a row."""
    JUST_IN_TIME = "just_in_time"
    """As late as the measured delays still let the chunk arrive before the last usable row."""


DEFAULT_THRESHOLD = 10
"""Control steps of on_demand, where nothing else is said."""


@dataclass(frozen=True)
class Pacing:
    """When queries start; ``threshold`` are the control steps of on_demand."""

    kind: QueryPacing = QueryPacing.CONTINUOUS
    threshold: int = DEFAULT_THRESHOLD


def chosen_pacing(kind: QueryPacing | None, threshold: int | None, recommended: Pacing | None) -> Pacing:
    """What is asked for, and for the rest what a policy's makers recommend.

    A threshold alone asks for on_demand. Without any word on it queries are continuous.
    """
    said = recommended or Pacing()
    if kind is None:
        kind = said.kind if threshold is None else QueryPacing.ON_DEMAND
    return Pacing(kind, said.threshold if threshold is None else threshold)


@dataclass(frozen=True)
class Moment:
    """What is known when an observation could be used; times in nanoseconds on one clock.

    Attributes:
        capture_ns: capture time of the observation.
        next_capture_ns: capture time expected of the next observation.
        rows_end_ns: time from which on no row is there; None while none is.
    """

    capture_ns: int
    next_capture_ns: int
    rows_end_ns: int | None


class QueryTimer:
    """Decides, at each observation, whether a query starts on it.

    Args:
        pacing: when queries start.
        period_ns: the control period.
        threshold: for on_demand, the control steps.

    Raises:
        ValueError: the threshold is negative.
    """

    def __init__(self, pacing: QueryPacing, period_ns: int, threshold: int = 0) -> None:
        if threshold < 0:
            raise ValueError(f"on_demand with a threshold of {threshold} control steps, expected 0 or more")
        self._pacing = pacing
        self._period_ns = period_ns
        self._threshold = threshold
        self._delays: deque[int] = deque(maxlen=_DELAYS)

    def arrived(self, delay_ns: int) -> None:
        """A chunk arrived, ``delay_ns`` after the capture of its observation."""
        self._delays.append(delay_ns)

    def forget(self) -> None:
        """The delays of before say nothing about those to come: another policy, another setting."""
        self._delays.clear()

    @property
    def reserve_ns(self) -> int | None:
        """Time kept between a capture and the end of the rows; None while too few delays are known.

        The longest of the recent delays, and one control step, as chunks take over at control steps. The
        99th percentile would starve one chunk in a hundred where back-to-back queries starve none; and a
        machine that slows down shows at its first slow query.
        """
        if len(self._delays) < _ENOUGH_DELAYS:
            return None
        return max(self._delays) + self._period_ns

    def due(self, moment: Moment) -> bool:
        """Whether to start a query on this observation, rather than to wait for the next one."""
        if self._pacing is QueryPacing.CONTINUOUS or moment.rows_end_ns is None:
            return True
        if self._pacing is QueryPacing.ON_DEMAND:
            left_ns = moment.rows_end_ns - moment.capture_ns
            return left_ns <= self._threshold * self._period_ns
        reserve_ns = self.reserve_ns
        # The next observation would be too late.
        return reserve_ns is None or moment.next_capture_ns + reserve_ns > moment.rows_end_ns
