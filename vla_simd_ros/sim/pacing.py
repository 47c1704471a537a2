"""How simulated time follows a clock, and which stamp a simulated instant carries."""

from __future__ import annotations

import math

MAX_LAG = 0.25
"""Seconds; a simulation further behind its clock gives the lost time up instead of racing after it."""


class Pacer:
    """Maps simulated seconds to nanoseconds of a clock, and keeps the simulation in step with it.

    The mapping is exact: a stamp names the instant whose state was captured, not the time at which the
    program got round to it.
    """

    def __init__(self, grid: float, speed: float = 1.0) -> None:
        """Raises ValueError unless both are positive.

        Args:
            grid: what time is given up in whole multiples of, simulated seconds: events of that period keep
                their phase against the clock, as those of a real sensor do while nobody reads it.
            speed: simulated seconds per second of the clock.
        """
        if not 0.0 < speed < float("inf"):
            raise ValueError(f"speed of the simulation: got {speed}, expected a positive number")
        if not 0.0 < grid < float("inf"):
            raise ValueError(f"grid of the simulation: got {grid} s, expected a positive number")
        self._grid, self._speed = grid, speed
        self._clock_origin: int | None = None
        self._simulated_origin = 0.0
        self.stalls = 0
        """How often time was given up."""
        self.given_up_s = 0.0
        """Seconds of the clock given up in all; less where the clock went back."""

    def target(self, now: int, simulated: float) -> float:
        """The simulated time to reach when the clock shows `now` (ns) and `simulated` seconds are done.

        After a stall longer than `MAX_LAG`, or a jump of the clock, time goes on from `simulated`, or from
        less than a `grid` later.
        """
        if self._clock_origin is None:
            self._clock_origin, self._simulated_origin = now, simulated
        lag = self._wanted(now) - simulated
        if not -MAX_LAG <= lag <= MAX_LAG * max(1.0, self._speed):
            given_up = math.floor(lag / self._grid) * self._grid / self._speed
            self._clock_origin += round(given_up * 1e9)
            self.stalls += given_up != 0.0
            self.given_up_s += given_up
        return max(self._wanted(now), simulated)

    def stamp(self, simulated: float) -> int:
        """The clock's time, in nanoseconds, of a simulated instant. Needs a `target` call first."""
        assert self._clock_origin is not None, "stamp() before target()"
        return self._clock_origin + round((simulated - self._simulated_origin) / self._speed * 1e9)

    def simulated(self, stamp: int) -> float:
        """The simulated instant of a time of the clock, in nanoseconds; the inverse of `stamp`."""
        return self._wanted(stamp)

    def _wanted(self, now: int) -> float:
        assert self._clock_origin is not None, "the clock has not been read yet"
        return self._simulated_origin + (now - self._clock_origin) * 1e-9 * self._speed
