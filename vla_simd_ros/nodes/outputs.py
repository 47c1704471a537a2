"""Adapters from a bounded command to the message that a robot's driver understands."""

from __future__ import annotations

from collections.abc import Sequence

from geometry_msgs.msg import TwistStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.nodes.autoware_output import AutowareOutput
from vla_simd_ros.nodes.messages import duration, stamp
from vla_simd_ros.nodes.output import Output, RowOutput
from vla_simd_ros.nodes.path_output import PathOutput

TWIST_COMPONENTS = ("linear_x", "linear_y", "linear_z", "angular_x", "angular_y", "angular_z")


class JointTrajectoryOutput(RowOutput):
    """For a joint_trajectory_controller: one point, to be reached one control period after receipt.

    The header's stamp is zero, which such a controller understands as "now": a stamp of our own clock would
    make it drop points when the clocks of two machines differ.
    """

    topic = "joint_trajectory"
    message_type = JointTrajectory

    def message(self, values: list[float], now_ns: int) -> JointTrajectory:
        """A trajectory of one point."""
        point = JointTrajectoryPoint(positions=values, time_from_start=duration(self._period_ns))
        return JointTrajectory(joint_names=self._joints, points=[point])


class FloatArrayOutput(RowOutput):
    """For forward command controllers: the values in joint order."""

    topic = "commands"
    message_type = Float64MultiArray

    def message(self, values: list[float], now_ns: int) -> Float64MultiArray:
        """The plain values."""
        return Float64MultiArray(data=values)


class JointStateOutput(RowOutput):
    """For simple servo drivers: the commanded positions as a joint state."""

    topic = "joint_command"
    message_type = JointState

    def message(self, values: list[float], now_ns: int) -> JointState:
        """Names and positions, stamped with the time of the command."""
        message = JointState(name=self._joints, position=values)
        message.header.stamp = stamp(now_ns)
        return message


class TwistOutput(RowOutput):
    """For MoveIt Servo and the like: end-effector velocities in the order linear x, y, z, angular x, y, z."""

    kind = ActionKind.VELOCITY
    topic = "twist"
    message_type = TwistStamped

    @classmethod
    def problem(cls, joints: Sequence[str]) -> str | None:
        """The joints must be the components of a twist."""
        if set(joints) == set(TWIST_COMPONENTS):
            return None
        return f"joints: got {list(joints)}, a twist has the components {list(TWIST_COMPONENTS)}"

    def message(self, values: list[float], now_ns: int) -> TwistStamped:
        """A twist in the frame of the parameter ``frame_id``."""
        by_name = dict(zip(self._joints, values, strict=True))
        message = TwistStamped()
        message.header.stamp = stamp(now_ns)
        message.header.frame_id = self._frame_id
        for name in TWIST_COMPONENTS:
            part, axis = name.split("_")
            setattr(getattr(message.twist, part), axis, by_name[name])
        return message


OUTPUTS: dict[str, type[Output]] = {
    "joint_trajectory": JointTrajectoryOutput,
    "float64_multi_array": FloatArrayOutput,
    "joint_state": JointStateOutput,
    "twist_stamped": TwistOutput,
    "autoware_trajectory": AutowareOutput,
    "path": PathOutput,
}
