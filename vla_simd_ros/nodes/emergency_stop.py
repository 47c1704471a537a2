"""The emergency stop of a node: once called for, in force until it is released."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.node import Node
from std_msgs.msg import Bool
from std_srvs.srv import SetBool

from vla_simd_ros.nodes.latched import subscribe_latched


class EmergencyStop:
    """Listens on the topic and the service ``emergency_stop`` for as long as the node exists.

    ``true`` on either stops. Only the service releases, with ``false``, and not while the last message on the
    topic says ``true``: ``false`` there is what a button says that is not pressed.

    Args:
        node: the node that has the topic.
        changed: called with the new state, also when it is the same.

    Attributes:
        latched: whether a stop is in force.
    """

    def __init__(self, node: Node, changed: Callable[[bool], None]) -> None:
        self._node = node
        self._changed = changed
        self.latched = False
        self._pressed = False
        self._subscriptions = subscribe_latched(node, Bool, "emergency_stop", self._on_message)
        node.create_service(SetBool, "emergency_stop", self._on_request)

    def in_force(self) -> bool:
        """Whether a stop is in force, counting what has arrived on the topic and waits to be received."""
        for subscription in self._subscriptions:
            with subscription.handle:
                taken = subscription.handle.take_message(subscription.msg_type, subscription.raw)
            if taken is not None:
                self._on_message(taken[0])
        return self.latched

    def _on_message(self, message: Bool) -> None:
        self._pressed = message.data
        if message.data:
            self._set(True, "called for on the topic emergency_stop")

    def _on_request(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        if request.data:
            self._set(True, "called for by the service")
        elif self._pressed:
            response.success = False
            response.message = "not released: the last message on the topic emergency_stop says true"
            return response
        else:
            self._set(False, "released: the next chunk restarts")
        response.success = True
        response.message = "no commands until it is released" if self.latched else "released"
        return response

    def _set(self, latched: bool, text: str) -> None:
        if latched is not self.latched:
            self._node.get_logger().warning(f"emergency stop {text}")
        self.latched = latched
        self._changed(latched)
