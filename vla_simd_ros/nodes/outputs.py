"""Adapters from a bounded command to the message that a robot's driver understands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from geometry_msgs.msg import TwistStamped
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import Vector
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.messages import stamp

TWIST_COMPONENTS = ("linear_x", "linear_y", "linear_z", "angular_x", "angular_y", "angular_z")


class Output(ABC):
    """Publishes commands on one topic.

    Args:
        node: the node that publishes.
        joints: names of the command's components, in order.
        period_ns: the control period.
        frame_id: the frame of a command that has one.
    """

    kind = ActionKind.POSITION
    topic = ""
    message_type: Any = None

    def __init__(self, node: LifecycleNode, joints: Sequence[str], period_ns: int, frame_id: str) -> None:
        self._node = node
        self._joints = list(joints)
        self._period_ns = period_ns
        self._frame_id = frame_id
        self._publisher = node.create_publisher(self.message_type, self.topic, qos.COMMAND)

    def send(self, command: Vector, now_ns: int) -> None:
        """Publish a command; it is meant to be reached one control period from now."""
        self._publisher.publish(self.message([float(value) for value in command], now_ns))

    def destroy(self) -> None:
        """Take the publisher off the node."""
        self._node.destroy_publisher(self._publisher)

    @abstractmethod
    def message(self, values: list[float], now_ns: int) -> Any:
        """The message for a command."""


class JointTrajectoryOutput(Output):
    """For a joint_trajectory_controller: one point, to be reached one control period after receipt.

    The header's stamp is zero, which such a controller understands as "now": a stamp of our own clock would
    make it drop points when the clocks of two machines differ.
    """

    topic = "joint_trajectory"
    message_type = JointTrajectory

    def message(self, values: list[float], now_ns: int) -> JointTrajectory:
        """A trajectory of one point."""
        point = JointTrajectoryPoint(positions=values)
        point.time_from_start.sec, point.time_from_start.nanosec = divmod(self._period_ns, 1_000_000_000)
        return JointTrajectory(joint_names=self._joints, points=[point])


class FloatArrayOutput(Output):
    """For forward command controllers: the values in joint order."""

    topic = "commands"
    message_type = Float64MultiArray

    def message(self, values: list[float], now_ns: int) -> Float64MultiArray:
        """The plain values."""
        return Float64MultiArray(data=values)


class JointStateOutput(Output):
    """For simple servo drivers: the commanded positions as a joint state."""

    topic = "joint_command"
    message_type = JointState

    def message(self, values: list[float], now_ns: int) -> JointState:
        """Names and positions, stamped with the time of the command."""
        message = JointState(name=self._joints, position=values)
        message.header.stamp = stamp(now_ns)
        return message


class TwistOutput(Output):
    """For MoveIt Servo and the like: end-effector velocities in the order linear x, y, z, angular x, y, z."""

    kind = ActionKind.VELOCITY
    topic = "twist"
    message_type = TwistStamped

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
}
