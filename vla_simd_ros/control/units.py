"""Joint units: what a policy was trained on, against what the robot's topics carry (radians or metres).

LeRobot's SO-101 records arm joints in degrees (or -100..100 of their calibrated range) and the gripper in
0..100 of its range; ROS 2 joint states are in radians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

UNITS = ("rad", "deg", "range_0_100", "range_m100_100")


class JointUnits:
    """Converts joint positions between the robot's units and the policy's, linearly per joint.

    Args:
        units: one of :data:`UNITS` per joint; "rad" means unchanged.
        lower: the position, in radians, at the lower end of each joint's calibrated range.
        upper: the same at its upper end. Both matter for the range units only.

    Raises:
        ValueError: unknown unit, or an empty range where one is needed.
    """

    def __init__(self, units: Sequence[str], lower: Sequence[float], upper: Sequence[float]) -> None:
        if not len(units) == len(lower) == len(upper):
            raise ValueError(
                f"{len(units)} joint units, {len(lower)} lower and {len(upper)} upper range ends: "
                "expected the same number of each"
            )
        pairs = [_line(unit, lo, hi) for unit, lo, hi in zip(units, lower, upper, strict=True)]
        self._scale: Vector = np.array([scale for scale, _ in pairs], dtype=np.float64)
        self._offset: Vector = np.array([offset for _, offset in pairs], dtype=np.float64)

    def to_policy(self, positions: Vector) -> Vector:
        """Robot units to policy units; the last axis is the joints."""
        return positions * self._scale + self._offset

    def to_robot(self, values: Vector) -> Vector:
        """Policy units to robot units; the last axis is the joints."""
        return (values - self._offset) / self._scale


def _line(unit: str, lower: float, upper: float) -> tuple[float, float]:
    """Scale and offset from radians to the unit."""
    if unit == "rad":
        return 1.0, 0.0
    if unit == "deg":
        return 180.0 / np.pi, 0.0
    if unit not in UNITS:
        raise ValueError(f"joint unit is '{unit}', expected one of {', '.join(UNITS)}")
    if not (upper > lower and math.isfinite(upper - lower)):
        raise ValueError(f"joint unit {unit} needs a finite range, got {lower} to {upper} rad")
    if unit == "range_0_100":
        scale = 100.0 / (upper - lower)
        return scale, -lower * scale
    scale = 200.0 / (upper - lower)
    return scale, -100.0 - lower * scale
