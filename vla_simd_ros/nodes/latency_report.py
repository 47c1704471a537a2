"""The latency budget of each chunk, published when its first row is executed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from rclpy.lifecycle import LifecycleNode

from vla_simd_ros.control.latency_budget import QUERY_STAGES, latency_budget
from vla_simd_ros.control.timeline import Step
from vla_simd_ros.msg import LatencyBudget
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.messages import nanoseconds

# Chunks that may wait for their first row at one time; more than the timeline keeps.
_CAPACITY = 64


class LatencyReport:
    """Remembers chunks from their arrival to their first command.

    Args:
        node: the node that publishes.
    """

    def __init__(self, node: LifecycleNode) -> None:
        self._node = node
        self._publisher = node.create_publisher(LatencyBudget, "latency_budget", qos.STATE)
        self._waiting: OrderedDict[int, tuple[Any, int]] = OrderedDict()

    def arrived(self, chunk: Any, now_ns: int) -> None:
        """A chunk (ActionChunk) was accepted."""
        self._waiting[chunk.sequence] = (chunk, now_ns)
        while len(self._waiting) > _CAPACITY:
            self._waiting.popitem(last=False)

    def executed(self, step: Step, now_ns: int) -> None:
        """A row was commanded."""
        chunk, arrival_ns = self._waiting.pop(step.sequence, (None, 0))
        if chunk is not None:
            self._publisher.publish(_message(chunk, step.row, arrival_ns, now_ns))

    def forget(self) -> None:
        """Forget the chunks that wait: their times are of another clock."""
        self._waiting.clear()

    def destroy(self) -> None:
        """Take the publisher off the node."""
        self._node.destroy_publisher(self._publisher)


def _message(chunk: Any, row: int, arrival_ns: int, command_ns: int) -> LatencyBudget:
    timing = chunk.timing
    budget = latency_budget(
        {name: getattr(timing, name) for name in QUERY_STAGES},
        nanoseconds(chunk.header.stamp),
        timing.observation_to_publish_ms,
        arrival_ns,
        command_ns,
    )
    return LatencyBudget(
        header=chunk.header,
        sequence=chunk.sequence,
        row=row,
        total_ms=budget.total_ms,
        unaccounted_ms=budget.unaccounted_ms,
        **budget.stages,
    )
