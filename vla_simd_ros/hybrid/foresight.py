"""By what factor a side will be slower, by what followed factors like those of now."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_OF_NOISE = 4.0
"""Slowdowns that are apart by so many times the noise are half alike; nearer ones soon are wholly, others not
at all."""
_POWER = 3
"""What followed a frame counts with this power of how long it was like then: long likeness tells a period,
short likeness a state."""
_OF_NOW = 2.0
"""That all stays as it is counts as much as what followed frames that were alike for so many frames."""
_MIDDLES = (np.arange(6) + 0.5) / 6
"""Of the parts, alike in weight, that the values to expect stand for."""


class Foresight:
    """Of one side; remembers its slowdowns frame by frame.

    For every lag it is kept for how many frames the slowdown has been as it was so many frames before. Loads
    that come back, whatever their period, are long alike at one lag, and its next frame says what comes next;
    loads without order are shortly alike at many lags, and what followed there is all possible.
    """

    def __init__(self, frames: int) -> None:
        """Remember the last ``frames`` frames."""
        # The newest frame is the last; those that have not been are infinitely unlike all.
        self._logs = np.full(frames, np.inf)
        self._alike = np.zeros(frames)  # for how many frames, at the lag of each place from the end

    def take(self, slowdown: float, noise: float) -> None:
        """A frame's slowdown, positive, and the noise that it has, relative."""
        self._logs[:-1] = self._logs[1:]
        self._logs[-1] = np.log(slowdown)
        away = np.square((self._logs - self._logs[-1]) / (_OF_NOISE * noise))
        self._alike = (self._alike + 1.0) / (1.0 + np.square(away))

    def expected(self, ahead: int) -> Floats:
        """Some slowdowns that are equally likely ``ahead`` frames after the newest one, 1 or more."""
        frames = len(self._logs)
        ahead = min(ahead, frames - 1)
        values, weights = self._logs[ahead:], self._alike[: frames - ahead] ** _POWER
        weights[-1] += _OF_NOW**_POWER  # the last value is that of now
        order = values.argsort()
        below = weights[order].cumsum()
        found: Floats = np.exp(values[order[below.searchsorted(_MIDDLES * below[-1])]])
        return found
