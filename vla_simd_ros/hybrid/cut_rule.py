"""One way to choose a cut: go where a forecast says that it is best, and be charged with what that cost."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.float64]
"""Seconds from frame to frame with every cut of the zone."""

_MOST_DELAY = 16


class CutRule:
    """Cuts are places in the zone, from 0.

    Attributes:
        charged: by how many intervals its cuts cost more than the best one of each frame, lately.
    """

    def __init__(self, cut: int, margin: float, charged: float = 0.0) -> None:
        """``margin`` is the share of the interval that a move must save."""
        self.charged = charged
        self._margin = margin
        self._cuts = deque([cut], maxlen=_MOST_DELAY)
        self._revised: int | None = None

    @property
    def cut(self) -> int:
        """Of the next frame."""
        return self._cuts[-1] if self._revised is None else self._revised

    def charge(self, intervals_s: Intervals, delay: int, kept: float) -> None:
        """A frame is over: add what it would have cost with the cut of ``delay`` choices before the last, to
        the part ``kept`` of what there was."""
        if self._revised is not None and delay:  # another frame has begun with it
            self._cuts[-1] = self._revised
        self._revised = None
        then = self._cuts[max(-1 - delay, -len(self._cuts))]
        best_s = float(intervals_s.min())
        self.charged = kept * self.charged + (float(intervals_s[then]) - best_s) / best_s

    def choose(self, forecast_s: Intervals, eager: bool = False) -> None:
        """Choose the next cut by the intervals that are expected; ``eager``: a move towards more blocks of
        the prefix need not save the margin."""
        self._revised = None
        self._cuts.append(self._best(self._cuts[-1], forecast_s, eager))

    def revise(self, forecast_s: Intervals, eager: bool = False) -> None:
        """Make the last choice, which there must be, again, as more is known: for a frame that begins before
        the next choice."""
        self._revised = self._best(self._cuts[-2], forecast_s, eager)

    def _best(self, here: int, forecast_s: Intervals, eager: bool) -> int:
        """The cut that follows the one ``here``."""
        best = int(forecast_s.argmin())
        least = 0.0 if eager and best > here else self._margin * float(forecast_s[here])
        return best if forecast_s[here] - forecast_s[best] > least else here
