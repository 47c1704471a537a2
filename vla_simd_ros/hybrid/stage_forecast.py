"""What one stage takes with every cut of the zone: now, and frames from now."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vla_simd_ros.hybrid.foresight import Foresight
from vla_simd_ros.hybrid.slowdown import Slowdown

Seconds = npt.NDArray[np.float64]


class StageForecast:
    """A stage's costs without any load, and by what factor it is slower than these."""

    def __init__(self, plain_s: Seconds, frames: int) -> None:
        """``plain_s`` is without load, of every cut; remember the last ``frames`` frames."""
        self._plain_s = plain_s
        self._slowdown = Slowdown()
        self._foresight = Foresight(frames)

    def take(self, place: int, measured_s: float, load: float) -> None:
        """Take in what a frame took with the cut at ``place`` of the zone; where it had nothing there, or the
        zone has no such place, the share of the side that others take, 0 to 1; NaN where that is unknown."""
        plain_s = float(self._plain_s[place]) if 0 <= place < len(self._plain_s) else 0.0
        if plain_s > 0.0 and math.isfinite(measured_s) and measured_s > 0.0:
            self._slowdown.take(measured_s / plain_s)
        elif 0.0 <= load < 1.0:
            self._slowdown.take(1.0 / (1.0 - load))
        self._foresight.take(self._slowdown.value, self._slowdown.noise)

    def now_s(self) -> Seconds:
        """[cuts]: under the slowdown of now."""
        return self._plain_s * self._slowdown.value

    def expected_s(self, ahead: int) -> Seconds:
        """[some, cuts]: some that are equally likely so many frames from now."""
        return self._plain_s * self._foresight.expected(ahead)[:, None]
