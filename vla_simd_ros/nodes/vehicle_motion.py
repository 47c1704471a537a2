"""A vehicle's motion out of nav_msgs/Odometry, as a policy's state has it: by the names of its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

COLUMNS = (
    "x",
    "y",
    "z",
    "yaw",
    "cos_yaw",
    "sin_yaw",
    "longitudinal_velocity",
    "lateral_velocity",
    "yaw_rate",
)
"""The pose in the frame of the message (Autoware's is the map), metres and radians; velocities of the vehicle
in its own frame, metres and radians per second."""

_WHOLE_TURN = 2.0 * math.pi


@dataclass(frozen=True)
class Motion:
    """The motion in the form of a joint state."""

    header: Any
    position: tuple[float, ...]
    name: tuple[str, ...] = COLUMNS


class VehicleMotion:
    """Reads messages of one vehicle in order.

    Its yaw runs on beyond half a turn instead of jumping, so that it can be interpolated.
    """

    def __init__(self) -> None:
        self._yaw = 0.0

    def read(self, message: Any) -> Motion:
        """The motion in a message; a yaw that is not a number for an orientation that is none."""
        pose, twist = message.pose.pose, message.twist.twist
        yaw = self._continued(_yaw(pose.orientation))
        return Motion(
            message.header,
            (
                pose.position.x,
                pose.position.y,
                pose.position.z,
                yaw,
                math.cos(yaw),
                math.sin(yaw),
                twist.linear.x,
                twist.linear.y,
                twist.angular.z,
            ),
        )

    def _continued(self, yaw: float) -> float:
        """The angle that is ``yaw`` but for whole turns and nearest to the last one."""
        if not math.isfinite(yaw):
            return yaw
        self._yaw = yaw + _WHOLE_TURN * round((self._yaw - yaw) / _WHOLE_TURN)
        return self._yaw


def _yaw(orientation: Any) -> float:
    x, y, z, w = orientation.x, orientation.y, orientation.z, orientation.w
    if not abs(x * x + y * y + z * z + w * w - 1.0) < 1e-2:
        return math.nan
    return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
