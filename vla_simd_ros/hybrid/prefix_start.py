"""When to begin the first stage of a frame, so that its result need not wait for the second.

Where the second stage is the slower one, a first stage that begins as soon as it can is done before the
second is free: its result waits there and grows old, or is replaced by a newer one. Begun later, on a newer
frame, it gives as many results, which are younger, and less is computed in vain.
"""

from __future__ import annotations

from collections import deque

_LATELY = 8
"""Frames whose stage times are looked at."""
_LEAST = 3
"""Nothing waits before so many are known."""


class PrefixStart:
    """Of one pipeline; times are seconds of its clock.

    The first stage is taken to last as long as the longest lately, the second as short as the shortest: so
    the second hardly ever waits, and what is left of the waiting is how much the times vary.
    """

    def __init__(self) -> None:
        self._took: dict[str, deque[float]] = {
            "prefix": deque(maxlen=_LATELY),
            "suffix": deque(maxlen=_LATELY),
        }
        self._suffix_began: float | None = None
        self._between = False  # a frame has left the first stage, and the second has not begun on it

    def began(self, stage: str, now: float) -> None:
        """A stage begins on a frame."""
        if stage == "suffix":
            self._suffix_began, self._between = now, False

    def ended(self, stage: str, seconds: float | None) -> None:
        """A stage has ended, after so many seconds; None where it made nothing of its frame."""
        if stage == "suffix":
            self._suffix_began = None
        if seconds is not None:
            self._took[stage].append(seconds)
            self._between |= stage == "prefix"

    def wait_s(self, now: float) -> float:
        """How long the first stage should not begin yet, 0 or more."""
        prefix, suffix, began = self._took["prefix"], self._took["suffix"], self._suffix_began
        if min(len(prefix), len(suffix)) < _LEAST:
            return 0.0
        shortest = min(suffix)
        free_at = now if began is None else max(now, began + shortest)
        return max(0.0, free_at + (shortest if self._between else 0.0) - max(prefix) - now)
