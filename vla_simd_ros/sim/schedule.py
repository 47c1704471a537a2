"""When the simulated sensors are read: events at fixed rates, on the grid of the physics' time steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from vla_simd_ros.sim.mjcf import TIMESTEP


class SensorSchedule:
    """Merges several periodic events into one sequence in time.

    An event is due at the first time step at or after its nominal time, so that a state is never captured
    before it exists, and rates that do not divide the time step keep their average.
    """

    def __init__(self, rates: Mapping[str, float]) -> None:
        """rates: events per second by name. Raises ValueError unless 0 < rate <= one per time step."""
        for name, rate in rates.items():
            if not 0.0 < rate <= 1.0 / TIMESTEP:
                limit = 1.0 / TIMESTEP
                raise ValueError(f"rate of {name}: got {rate} Hz, expected more than 0, at most {limit:.0f}")
        self._rates = dict(rates)
        self._counts = dict.fromkeys(rates, 1)

    def _due(self, name: str) -> int:
        return math.ceil(self._counts[name] / self._rates[name] / TIMESTEP - 1e-6)

    @property
    def next_step(self) -> int | None:
        """The time step of the next event; None where there is none."""
        return min((self._due(name) for name in self._rates), default=None)

    def until(self, step: int) -> Iterator[tuple[int, list[str]]]:
        """(time step, names of the events due there) in order, up to and including `step`; each only once."""
        while (due := self.next_step) is not None and due <= step:
            names = [name for name in self._rates if self._due(name) == due]
            for name in names:
                self._counts[name] += 1
            yield due, names
