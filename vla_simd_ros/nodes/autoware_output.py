"""Commands for a vehicle that runs Autoware: the whole plan, as a trajectory from now on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rclpy.lifecycle import LifecycleNode

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import Vector
from vla_simd_ros.control.plan import Ahead
from vla_simd_ros.nodes.messages import duration, stamp
from vla_simd_ros.nodes.output import Output

REQUIRED = ("x", "y", "yaw", "longitudinal_velocity")

# Columns that are plain fields of a point.
_FIELDS = {
    "longitudinal_velocity": "longitudinal_velocity_mps",
    "lateral_velocity": "lateral_velocity_mps",
    "acceleration": "acceleration_mps2",
    "heading_rate": "heading_rate_rps",
    "front_wheel_angle": "front_wheel_angle_rad",
    "rear_wheel_angle": "rear_wheel_angle_rad",
}
# Of these a standing vehicle has none.
_MOTION = ("longitudinal_velocity", "lateral_velocity", "acceleration", "heading_rate")

COLUMNS = ("x", "y", "z", "yaw", *_FIELDS)


class AutowareOutput(Output):
    """Publishes the plan's rows, from the present one on, as ``autoware_planning_msgs/Trajectory``.

    Rows whose time has passed are left out, and the times of the others counted from now. While the executor
    brakes or holds, the trajectory sent last goes on with all velocities 0, for Autoware to stop on.
    """

    kind = ActionKind.WAYPOINT
    needs_ahead = True
    topic = "trajectory"

    def __init__(self, node: LifecycleNode, joints: Sequence[str], period_ns: int, frame_id: str) -> None:
        self._messages = _messages()
        self.message_type = self._messages.Trajectory
        super().__init__(node, joints, period_ns, frame_id)
        self._plan: list[tuple[int, list[float]]] = []

    @classmethod
    def problem(cls, joints: Sequence[str]) -> str | None:
        """The package must be there, and the joints columns that a point has."""
        missing = [name for name in REQUIRED if name not in joints]
        unknown = [name for name in joints if name not in COLUMNS]
        if missing or unknown:
            optional = [name for name in COLUMNS if name not in REQUIRED]
            return (
                f"joints: got {list(joints)}, a vehicle's trajectory has the columns {', '.join(REQUIRED)} "
                f"and, where wanted, {', '.join(optional)}"
            )
        try:
            _messages()
        except ImportError as error:
            return f"output: 'autoware_trajectory' needs the package autoware_planning_msgs: {error}"
        return None

    def send(self, command: Vector, now_ns: int, ahead: Ahead | None) -> None:
        """Publish what is planned; while the executor brakes or holds, a stop."""
        if ahead is None:
            self._publish(now_ns, [name for name in self._joints if name not in _MOTION])
            return
        times_ns, rows = ahead.times_ns, ahead.rows
        to_come = times_ns >= now_ns
        if to_come.any():
            times_ns, rows = times_ns[to_come], rows[to_come]
        else:
            times_ns, rows = times_ns[-1:], rows[-1:]
        self._plan = [
            (int(time_ns), row) for time_ns, row in zip(times_ns.tolist(), rows.tolist(), strict=True)
        ]
        self._publish(now_ns, self._joints)

    def _publish(self, now_ns: int, columns: Sequence[str]) -> None:
        if not self._plan:
            return
        points = [self._point(time_ns - now_ns, values, columns) for time_ns, values in self._plan]
        message = self._messages.Trajectory(points=points)
        message.header.stamp = stamp(now_ns)
        message.header.frame_id = self._frame_id
        self._publisher.publish(message)

    def _point(self, from_now_ns: int, values: list[float], columns: Sequence[str]) -> Any:
        named = {name: value for name, value in zip(self._joints, values, strict=True) if name in columns}
        point = self._messages.TrajectoryPoint(time_from_start=duration(from_now_ns))
        position, heading = point.pose.position, point.pose.orientation
        position.x, position.y, position.z = named["x"], named["y"], named.get("z", 0.0)
        heading.z, heading.w = math.sin(named["yaw"] / 2.0), math.cos(named["yaw"] / 2.0)
        for name, field in _FIELDS.items():
            setattr(point, field, named.get(name, 0.0))
        return point


def _messages() -> Any:
    from autoware_planning_msgs import msg

    return msg
