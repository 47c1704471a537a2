"""How long a node worked, on ``~/debug/processing_time_ms``, where Autoware's monitors look for it.

They subscribe to Float64Stamped of autoware_internal_debug_msgs, older ones to tier4_debug_msgs'. Where
neither package is installed there is no such monitor either, and std_msgs/Float64 serves those who plot:
``data`` is the number in all three.
"""

from __future__ import annotations

import importlib
from typing import Any

from rclpy.lifecycle import LifecycleNode
from std_msgs.msg import Float64

from vla_simd_ros.nodes import qos

TOPIC = "~/debug/processing_time_ms"
_PACKAGES = ("autoware_internal_debug_msgs", "tier4_debug_msgs")


def message_class() -> Any:
    """The message of this installation."""
    for package in _PACKAGES:
        try:
            return importlib.import_module(f"{package}.msg").Float64Stamped
        except ModuleNotFoundError:
            continue
    return Float64


class ProcessingTime:
    """Publishes the times of one node.

    Args:
        node: the node.
    """

    def __init__(self, node: LifecycleNode) -> None:
        self._node = node
        self._message = message_class()
        self._publisher = node.create_publisher(self._message, TOPIC, qos.CHUNK)

    def publish(self, milliseconds: float) -> None:
        """The node worked for so long, until now."""
        message = self._message(data=milliseconds)
        if hasattr(message, "stamp"):
            message.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def destroy(self) -> None:
        """Take the publisher off the node."""
        self._node.destroy_publisher(self._publisher)
