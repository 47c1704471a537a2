"""How simulated time follows a clock, and which stamp a simulated instant carries."""

from __future__ import annotations

MAX_LAG = 0.25
"""Seconds; a simulation further behind its clock gives the lost time up instead of racing after it."""


class Pacer:
    """Maps simulated seconds to nanoseconds of a clock, and keeps the simulation in step with it.

    The mapping is exact: a stamp names the instant whose state was captured, not the time at which the
    program got round to it.
    """

    def __init__(self, speed: float = 1.0) -> None:
        """speed: simulated seconds per second of the clock. Raises ValueError unless it is positive."""
        if not 0.0 < speed < float("inf"):
            raise ValueError(f"speed of the simulation: got {speed}, expected a positive number")
        self._speed = speed
        self._clock_origin: int | None = None
        self._simulated_origin = 0.0

    def target(self, now: int, simulated: float) -> float:
        """The simulated time to reach when the clock shows `now` (ns) and `simulated` seconds are done.

        After a stall longer than `MAX_LAG`, or a jump of the clock, time goes on from `simulated`.
        """
        if self._clock_origin is None:
            self._anchor(now, simulated)
        wanted = self._wanted(now)
        if not -MAX_LAG <= wanted - simulated <= MAX_LAG * max(1.0, self._speed):
            self._anchor(now, simulated)
            wanted = simulated
        return max(wanted, simulated)

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

    def _anchor(self, now: int, simulated: float) -> None:
        self._clock_origin = now
        self._simulated_origin = simulated
