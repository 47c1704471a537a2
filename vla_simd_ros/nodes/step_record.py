"""Each control step as a message, for a recording that is to be replayed."""

from __future__ import annotations

from rclpy.lifecycle import LifecycleNode

from vla_simd_ros.control.control_loop import ControlLoop, Tick
from vla_simd_ros.msg import ControlStep
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.messages import stamp


class StepRecord:
    """Remembers what comes in between two control steps, and publishes it with the next one.

    Args:
        node: the node that publishes.
    """

    def __init__(self, node: LifecycleNode) -> None:
        self._node = node
        self._publisher = node.create_publisher(ControlStep, "control_step", qos.STATE)
        self._first = True
        self._accepted: list[tuple[int, int]] = []

    def activated(self) -> None:
        """The next step is the first one."""
        self._first = True
        self._accepted.clear()

    def accepted(self, sequence: int, now_ns: int) -> None:
        """A chunk was accepted."""
        self._accepted.append((sequence, now_ns))

    def stepped(self, loop: ControlLoop, tick: Tick, now_ns: int) -> None:
        """A control step was made."""
        if self._publisher.get_subscription_count():
            self._publisher.publish(self._message(loop, tick, now_ns))
        self._first = False
        self._accepted.clear()

    def _message(self, loop: ControlLoop, tick: Tick, now_ns: int) -> ControlStep:
        message = ControlStep(
            time=stamp(loop.grid.time_ns),
            first=self._first,
            epoch=loop.timeline.epoch or 0,
            accepted=[sequence for sequence, _ in self._accepted],
            arrivals=[stamp(time_ns) for _, time_ns in self._accepted],
            joint_stamp=stamp(loop.measured_ns),
            hold_requested=loop.hold_requested,
            emergency_stop=loop.emergency,
            publishers=loop.chunk_publishers,
            sequence=tick.row.sequence if tick.row else 0,
            row=tick.row.row if tick.row else -1,
            command=[] if tick.command is None else [float(value) for value in tick.command],
        )
        message.header.stamp = stamp(now_ns)
        return message

    def destroy(self) -> None:
        """Take the publisher off the node."""
        self._node.destroy_publisher(self._publisher)
