"""What an adapter from bounded commands to a robot driver's message has in common with the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from rclpy.lifecycle import LifecycleNode

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import Vector
from vla_simd_ros.control.plan import Ahead
from vla_simd_ros.nodes import qos


class Output(ABC):
    """Publishes commands on one topic.

    Args:
        node: the node that publishes.
        joints: names of the command's components, in order.
        period_ns: the control period.
        frame_id: the frame of a command that has one.

    Attributes:
        kind: what the rows of a chunk are to the driver.
        needs_ahead: whether a command is the whole plan rather than one row.
    """

    kind = ActionKind.POSITION
    needs_ahead = False
    topic = ""
    message_type: Any = None

    def __init__(self, node: LifecycleNode, joints: Sequence[str], period_ns: int, frame_id: str) -> None:
        self._node = node
        self._joints = list(joints)
        self._period_ns = period_ns
        self._frame_id = frame_id
        self._publisher = node.create_publisher(self.message_type, self.topic, qos.COMMAND)

    @classmethod
    def problem(cls, joints: Sequence[str]) -> str | None:
        """Why the adapter cannot be had, or not for commands of these components; None where it can."""
        return None

    @abstractmethod
    def send(self, command: Vector, now_ns: int, ahead: Ahead | None) -> None:
        """Publish a command; it is meant to be reached one control period from now.

        ``ahead`` is what is planned, for an adapter that needs it; None while the executor brakes or holds.
        """

    def destroy(self) -> None:
        """Take the publisher off the node."""
        self._node.destroy_publisher(self._publisher)


class RowOutput(Output):
    """Publishes one row at a time."""

    def send(self, command: Vector, now_ns: int, ahead: Ahead | None) -> None:
        """Publish the command alone."""
        self._publisher.publish(self.message([float(value) for value in command], now_ns))

    @abstractmethod
    def message(self, values: list[float], now_ns: int) -> Any:
        """The message for a command."""
