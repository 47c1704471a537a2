"""By what factor a side is slower than its costs now, told apart from the noise of its stage times."""

from __future__ import annotations

import math

_SURPRISE = 3.5
"""A measurement so many standard deviations away from the estimate is a change, not noise."""
_DRIFT = 2.25
"""Two in a row that are so many away to the same side are a change too: a load goes up or down bit by bit."""
_FRAMES = 10
"""An estimate is the mean since the last change, over about so many frames at most, so that it follows slow
changes too."""
_LEAST_NOISE, _MOST_NOISE = 0.01, 0.05
"""Relative standard deviations. A load that changes from frame to frame looks like noise as well: more than
the most is taken for that, or it would hide its own changes."""
_STEP = 0.05
"""How far one frame moves the estimate of the noise."""
_MEDIAN_OF_NORMAL = 0.6745
"""The median of the absolute values of a normal distribution of variance 1."""


class Slowdown:
    """Of one side.

    Attributes:
        value: the factor.
        noise: relative standard deviation of single measurements around it, within what is taken for noise.
    """

    def __init__(self) -> None:
        self.value = 1.0
        self._spread = _MOST_NOISE  # until it is known: at first nothing small is taken for a change
        self._count = 1
        self._away = 0.0  # of the measurement before, in standard deviations
        self._last: float | None = None

    @property
    def noise(self) -> float:
        return min(_MOST_NOISE, max(_LEAST_NOISE, self._spread))

    def take(self, measured: float) -> None:
        """Take the factor of a frame in, a positive number."""
        step = measured / self.value - 1.0
        before, self._away = self._away, step / (self.noise * math.sqrt(1.0 + 1.0 / self._count))
        drifts = min(abs(before), abs(self._away)) > _DRIFT and before * self._away > 0.0
        changed = abs(self._away) > _SURPRISE or drifts
        self._count = 1 if changed else min(self._count + 1, _FRAMES)
        self.value *= 1.0 + step / self._count
        if self._last is not None:
            self._widen(abs(measured / self._last - 1.0))
        self._last = measured

    def _widen(self, step: float) -> None:
        """Let the spread be the median of the steps from frame to frame, in standard deviations: up where one
        is longer, down where it is shorter. A change of load is a single long step, and counts as one."""
        deviation = step / (math.sqrt(2.0) * _MEDIAN_OF_NORMAL)
        longer = deviation > self._spread
        self._spread = min(1.0, max(1e-3, self._spread * (1.0 + (_STEP if longer else -_STEP))))
