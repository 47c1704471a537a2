"""Which goals are reached in the simulated scene, as a message that a late listener gets too."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from rclpy.time import Time

from vla_simd_ros.nodes import qos
from vla_simd_ros.sim.tasks import INSTRUCTIONS, TaskScene

SEED, RESETS = "scene_seed", "resets"
"""Keys beside the instructions: which scene it is, and how many there have been before it."""


class TaskReport:
    """Publishes ~/achieved whenever it changes."""

    def __init__(self, node: Node, scene: TaskScene) -> None:
        self._name = f"{node.get_fully_qualified_name().lstrip('/')}: tasks"
        self._scene = scene
        self._publisher = node.create_publisher(DiagnosticArray, "~/achieved", qos.LATCHED)
        self._published: tuple[frozenset[str], int, int] | None = None

    def update(self, stamp: Time, seed: int, resets: int) -> None:
        """Look at the scene, at the instant of `stamp`."""
        now = self._scene.achieved(), seed, resets
        if now == self._published:
            return
        self._published = now
        achieved = sorted(now[0])
        values = {instruction: str(instruction in achieved).lower() for instruction in INSTRUCTIONS}
        values.update({SEED: str(seed), RESETS: str(resets)})
        status = DiagnosticStatus(
            level=DiagnosticStatus.OK,
            name=self._name,
            message="; ".join(achieved) or "no goal is reached",
            values=[KeyValue(key=key, value=value) for key, value in values.items()],
        )
        message = DiagnosticArray(status=[status])
        message.header.stamp = stamp.to_msg()
        self._publisher.publish(message)
