"""Whether a policy keeps its controller supplied, said as soon as its first chunks tell."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from dataclasses import dataclass

from vla_simd_ros.control.budget import Budget, advice, budget, forecast
from vla_simd_ros.control.schedule import Schedule

# Chunks that are remembered; after so many the first verdict is given, and later ones where it has changed.
_KEPT = 128
_ENOUGH = 5
_AGAIN = 32


@dataclass(frozen=True)
class Verdict:
    """C1 and C2 at the median of ``samples`` chunks and at the slowest of them, in words with what to do;
    whether the policy could take fewer solver steps."""

    samples: int
    window: int
    query_s: float
    median: Budget
    longest: Budget
    advice: str
    fewer_steps: bool

    @property
    def holds(self) -> tuple[bool, bool]:
        """Whether C1 and C2 hold for the slowest chunk too."""
        return holds(self.longest)

    def __str__(self) -> str:
        d, window = self.median.delay, self.window
        conditions = (
            f"C1 (d = {d} <= H = {window}) {_margin(self.median.c1, self.longest.c1)}, "
            f"C2 (2 d = {2 * d} <= H) {_margin(self.median.c2, self.longest.c2)}"
        )
        takes = f"a query takes {self.query_s * 1e3:.0f} ms (median of {self.samples})"
        return f"{takes}, its chunk comes {d} control steps after the capture: {conditions}. {self.advice}"


def _margin(median: int, longest: int) -> str:
    if median < 0:
        return f"fails by {-median} steps"
    return "holds" if longest >= 0 else f"holds, but fails by {-longest} steps for the slowest"


def holds(longest: Budget) -> tuple[bool, bool]:
    """Whether C1 and C2 hold in a budget."""
    return longest.c1 >= 0, longest.c2 >= 0


class SupplyWatch:
    """Judges the chunks of one policy; used from any thread.

    Args:
        rate: rows of a chunk per second, which are control steps here.
        window: rows of a chunk that may be executed, H.
        fewer_steps: whether the policy could take fewer solver steps.

    Attributes:
        verdict: the last one; None before the first.
    """

    def __init__(self, rate: float, window: int, fewer_steps: bool) -> None:
        self._rate = rate
        self._window = window
        self._fewer_steps = fewer_steps
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Forget the chunks: those to come are computed otherwise."""
        with self._lock:
            self.verdict: Verdict | None = None
            self._queries_s: deque[float] = deque(maxlen=_KEPT)
            self._added_s: deque[float] = deque(maxlen=_KEPT)
            self._count = 0

    def chunk(self, query_s: float, delay_s: float) -> Verdict | None:
        """A chunk whose query took ``query_s`` is there ``delay_s`` after its capture.

        A verdict when there is a new one to say: at once where C1 is out of reach, else after a few chunks.
        """
        with self._lock:
            self._queries_s.append(query_s)
            self._added_s.append(max(0.0, delay_s - query_s))
            self._count += 1
            if self._count not in (1, _ENOUGH) and self._count % _AGAIN:
                return None
            return self._judge()

    def _judge(self) -> Verdict | None:
        schedule = Schedule(self._rate, self._window, added_s=statistics.median(self._added_s))
        median = budget(statistics.median_high(self._queries_s), schedule)
        longest = budget(max(self._queries_s), schedule)
        if self._count == 1 and median.c1 >= 0:
            return None
        known = self.verdict
        # To find what to advise takes as long as many queries: only where there is something new to say.
        if known is not None and known.holds == holds(longest):
            text = known.advice
        else:
            text = advice(forecast(list(self._queries_s), schedule), self._fewer_steps)
        self.verdict = Verdict(
            len(self._queries_s), self._window, median.latency_s, median, longest, text, self._fewer_steps
        )
        return self.verdict if known is None or known.holds != self.verdict.holds else None
