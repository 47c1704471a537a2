"""Query timing from what a policy's side knows: observations, chunks sent, and what the executor reports."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import pairwise

from vla_simd_ros.control.query_timing import Moment, QueryPacing, QueryTimer
from vla_simd_ros.control.timeline import Mode

# So many captures say when the next one is expected; the transport of so many chunks is remembered.
_CAPTURES = 16
_CHUNKS = 64


@dataclass(frozen=True)
class SupplyReport:
    """What the executor says of its supply; times in nanoseconds.

    Attributes:
        time_ns: the time of the report.
        mode: the mode of execution.
        period_ns: the control period.
        buffered_steps: control steps that have a row.
        sequence: the chunk accepted last; 0: none.
        delay_ns: the delay of that chunk, from capture to arrival.
    """

    time_ns: int
    mode: Mode
    period_ns: int
    buffered_steps: int
    sequence: int
    delay_ns: int


class QueryPacer:
    """Says, for each observation, whether to query it; continuously until the executor has reported.

    The rows of the chunk sent last end at a time that its stamp tells (time-aligned), or its expected arrival
    (lagged). The time from publication to arrival is the longest one measured over recent reports.
    Methods may be called from any thread.

    Args:
        pacing: when queries start.
        threshold: for on_demand, control steps.
    """

    def __init__(self, pacing: QueryPacing, threshold: int) -> None:
        self._pacing = pacing
        self._threshold = threshold
        self._lock = threading.Lock()
        self._timer: QueryTimer | None = None
        self._report: SupplyReport | None = None
        self._captures: deque[int] = deque(maxlen=_CAPTURES)
        self._published: OrderedDict[int, int] = OrderedDict()
        self._transports: deque[int] = deque(maxlen=_CHUNKS)
        self._rows_end_ns: int | None = None
        self._sent_ns = 0

    def observed(self, capture_ns: int) -> None:
        """An observation has been captured."""
        with self._lock:
            self._captures.append(capture_ns)

    def due(self, capture_ns: int) -> bool:
        """Whether to query this observation, rather than to wait for the next one."""
        with self._lock:
            if self._timer is None:
                return True
            steps = [later - earlier for earlier, later in pairwise(self._captures)]
            return self._timer.due(Moment(capture_ns, capture_ns + max(steps, default=0), self._rows_end_ns))

    def published(self, sequence: int, capture_ns: int, now_ns: int, duration_ns: int) -> None:
        """A chunk is being published whose rows last for ``duration_ns``."""
        with self._lock:
            delay_ns = now_ns - capture_ns
            self._published[sequence] = delay_ns
            if len(self._published) > _CHUNKS:
                self._published.popitem(last=False)
            self._sent_ns = now_ns
            if self._timer is None or self._report is None:
                return
            transport_ns = max(self._transports, default=0)
            self._timer.arrived(delay_ns + transport_ns)
            lagged = self._report.mode is Mode.LAGGED
            self._rows_end_ns = (now_ns + transport_ns if lagged else capture_ns) + duration_ns

    def executor(self, report: SupplyReport) -> None:
        """Take a report; delays of another mode or rate say nothing any more."""
        with self._lock:
            before, self._report = self._report, report
            if before is None or (before.mode, before.period_ns) != (report.mode, report.period_ns):
                self._timer = QueryTimer(self._pacing, report.period_ns, self._threshold)
                self._rows_end_ns = None
            delay_ns = self._published.pop(report.sequence, None)
            if delay_ns is not None:
                self._transports.append(max(0, report.delay_ns - delay_ns))
            # Rows that should be there and are not: rejected, dropped by a hold, lost on the way.
            arrived_ns = self._sent_ns + max(self._transports, default=0) + report.period_ns
            if report.buffered_steps == 0 and report.time_ns > arrived_ns:
                self._rows_end_ns = None

    def start_epoch(self) -> None:
        """The rows of before are not executed any more."""
        with self._lock:
            self._rows_end_ns = None

    def clock_jumped(self) -> None:
        """Forget all times."""
        with self._lock:
            self._captures.clear()
            self._published.clear()
            self._transports.clear()
            self._rows_end_ns = None
            self._sent_ns = 0
            if self._timer is not None:
                self._timer.forget()
