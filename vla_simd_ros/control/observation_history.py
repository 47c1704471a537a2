"""Past observations by their capture time, for policies that look at several observation steps.

What arrives late, twice, out of order or not at all changes nothing about the others: each step is the sample
nearest to its own time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class SampleHistory(Generic[T]):
    """The samples of one source, by capture time.

    Kept are those not older than ``keep_ns`` before the ``recent``-th newest one, never more than ``most``.
    """

    def __init__(self, keep_ns: int, recent: int, most: int = 256) -> None:
        self._keep_ns = keep_ns
        self._recent = recent
        self._most = most
        self._stamps: list[int] = []
        self._samples: list[T] = []

    def add(self, stamp_ns: int, sample: T) -> None:
        """Take a sample, wherever its time lies; of two with one time the first is kept."""
        index = bisect_left(self._stamps, stamp_ns)
        if index < len(self._stamps) and self._stamps[index] == stamp_ns:
            return
        self._stamps.insert(index, stamp_ns)
        self._samples.insert(index, sample)
        recent = self._stamps[-min(self._recent, len(self._stamps))]
        old = max(bisect_left(self._stamps, recent - self._keep_ns), len(self._stamps) - self._most)
        del self._stamps[:old], self._samples[:old]

    def nearest(self, time_ns: int, tolerance_ns: int) -> T | None:
        """The sample nearest to a time (the earlier of two as near), None where none is within tolerance."""
        after = bisect_left(self._stamps, time_ns)
        around = range(max(0, after - 1), min(after + 1, len(self._stamps)))
        index = min(around, key=lambda i: abs(self._stamps[i] - time_ns), default=None)
        if index is None or abs(self._stamps[index] - time_ns) > tolerance_ns:
            return None
        return self._samples[index]

    def clear(self) -> None:
        """Forget all samples."""
        self._stamps.clear()
        self._samples.clear()

    def __len__(self) -> int:
        return len(self._stamps)


def step_times(time_ns: int, steps: int, period_ns: int) -> list[int]:
    """The times of ``steps`` observation steps up to the one at ``time_ns``, oldest first."""
    return [time_ns - back * period_ns for back in reversed(range(steps))]


def padded(steps: Sequence[T | None], newest: T) -> tuple[list[T], list[bool]]:
    """Observation steps, oldest first and the ``newest`` last, and which of them there were.

    For a missing one stands the next that there is, as the first observation of an episode does for those
    before it.
    """
    whole = [newest]
    for step in reversed(steps):
        whole.insert(0, whole[0] if step is None else step)
    return whole, [*(step is not None for step in steps), True]
