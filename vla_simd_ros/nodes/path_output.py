"""Commands for a vehicle as a path of poses, for those who follow or show one without Autoware's messages."""

from __future__ import annotations

import math
from collections.abc import Sequence

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import Vector
from vla_simd_ros.control.plan import Ahead
from vla_simd_ros.nodes.messages import stamp
from vla_simd_ros.nodes.output import Output

REQUIRED = ("x", "y", "yaw")


class PathOutput(Output):
    """Publishes the poses of the rows that are to come as ``nav_msgs/Path``, each stamped with its time.

    A path says nothing of velocities, so one without poses tells to stop: it is what is published while the
    executor brakes or holds.
    """

    kind = ActionKind.WAYPOINT
    needs_ahead = True
    topic = "path"
    message_type = Path

    @classmethod
    def problem(cls, joints: Sequence[str]) -> str | None:
        """The joints must have the columns of a pose in the plane; others are passed over."""
        missing = [name for name in REQUIRED if name not in joints]
        if missing:
            return f"joints: got {list(joints)}, a path has the columns {', '.join(REQUIRED)} and perhaps z"
        return None

    def send(self, command: Vector, now_ns: int, ahead: Ahead | None) -> None:
        """Publish what is planned; a path without poses while the executor brakes or holds."""
        path = Path()
        path.header.stamp = stamp(now_ns)
        path.header.frame_id = self._frame_id
        if ahead is not None:
            rows = zip(ahead.times_ns.tolist(), ahead.rows.tolist(), strict=True)
            path.poses = [self._pose(time_ns, row) for time_ns, row in rows if time_ns >= now_ns]
        self._publisher.publish(path)

    def _pose(self, time_ns: int, row: Sequence[float]) -> PoseStamped:
        values = dict(zip(self._joints, row, strict=True))
        pose = PoseStamped()
        pose.header.stamp = stamp(time_ns)
        pose.header.frame_id = self._frame_id
        position, heading = pose.pose.position, pose.pose.orientation
        position.x, position.y, position.z = values["x"], values["y"], values.get("z", 0.0)
        heading.z, heading.w = math.sin(values["yaw"] / 2.0), math.cos(values["yaw"] / 2.0)
        return pose
