"""The two primitive shapes that the simulated world is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

Vector = tuple[float, float, float]
Color = tuple[float, float, float]
"""Red, green and blue in 0..1."""


@dataclass(frozen=True)
class Capsule:
    """A rod with round ends between two points of its link's frame; metres."""

    start: Vector
    end: Vector
    radius: float
    color: Color

    @property
    def volume(self) -> float:
        """Cubic metres."""
        length = math.dist(self.start, self.end)
        return math.pi * self.radius**2 * (length + 4.0 / 3.0 * self.radius)


@dataclass(frozen=True)
class Box:
    """A box along the axes of its link's frame; metres."""

    center: Vector
    half_size: Vector
    color: Color

    @property
    def volume(self) -> float:
        """Cubic metres."""
        return 8.0 * math.prod(self.half_size)


Shape = Capsule | Box
