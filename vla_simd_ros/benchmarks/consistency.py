"""Whether one of two settings is consistently faster, from pairs measured in the order A-B-B-A."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_PAIRS = 5
"""With fewer, all but at most one of them say nothing."""


@dataclass(frozen=True)
class Pair:
    """Query times of one block, in milliseconds and in the order in which they were taken."""

    first_a: float
    first_b: float
    second_b: float
    second_a: float

    @property
    def ratio(self) -> float:
        """Time of B over that of A; a machine that slows down steadily does not change it."""
        return (self.first_b + self.second_b) / (self.first_a + self.second_a)

    @property
    def drift(self) -> float:
        """How far A's own two times are apart, as a part of the shorter one."""
        return max(self.first_a, self.second_a) / min(self.first_a, self.second_a) - 1


@dataclass(frozen=True)
class Verdict:
    """``effect`` is the median of (time of B / time of A - 1), positive where A is faster; ``drift`` the
    median of how far the baseline's own times are apart; ``faster`` is "A", "B", or "=" where neither is."""

    effect: float
    drift: float
    pairs_a: int
    pairs_b: int
    pairs: int
    faster: str


def judge(pairs: Sequence[Pair]) -> Verdict:
    """A setting is consistently faster if it is in all but at most one pair and its effect exceeds the drift.

    Raises ValueError for fewer than ``LEAST_PAIRS`` pairs, and for times that are not positive.
    """
    if len(pairs) < LEAST_PAIRS:
        raise ValueError(f"got {len(pairs)} pairs, expected at least {LEAST_PAIRS}")
    for pair in pairs:
        if not min(pair.first_a, pair.first_b, pair.second_b, pair.second_a) > 0:
            raise ValueError(f"got {pair}, expected times that are positive")
    effect = statistics.median(pair.ratio for pair in pairs) - 1
    drift = statistics.median(pair.drift for pair in pairs)
    for_a = sum(pair.ratio > 1 for pair in pairs)
    for_b = sum(pair.ratio < 1 for pair in pairs)
    faster = "="
    if abs(effect) > drift:
        if effect > 0 and for_a >= len(pairs) - 1:
            faster = "A"
        elif effect < 0 and for_b >= len(pairs) - 1:
            faster = "B"
    return Verdict(effect, drift, for_a, for_b, len(pairs), faster)
