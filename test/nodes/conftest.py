"""Nodes in this process, with simulated time that the test moves."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from rclpy.context import Context  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from rclpy.qos import QoSProfile  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402

PATIENCE_S = 20.0


class RosBench:
    """A ROS context of its own, nodes spun by the test, and the /clock they follow."""

    def __init__(self) -> None:
        self.context = Context()
        rclpy.init(context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.helper = Node("bench", context=self.context)
        self.executor.add_node(self.helper)
        self._clock = self.helper.create_publisher(Clock, "/clock", QoSProfile(depth=1))
        self._nodes: list[Any] = []
        self.now_ns = 1_000_000_000_000

    def add(self, make: Callable[..., Any], **parameters: Any) -> Any:
        """Make a node that follows the bench's clock, and wait until it does."""
        node = self.add_live(make, use_sim_time=True, **parameters)
        self.set_time(self.now_ns)
        return node

    def add_live(self, make: Callable[..., Any], **parameters: Any) -> Any:
        """Make a node with a clock of its own; not together with those that follow the bench's."""
        overrides = [Parameter(name, value=value) for name, value in parameters.items()]
        node = make(context=self.context, parameter_overrides=overrides)
        self.executor.add_node(node)
        self._nodes.append(node)
        return node

    def spin_until(self, condition: Callable[[], Any], what: str) -> None:
        """Spin until the condition holds; fails with ``what`` was waited for when it never does."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            self.executor.spin_once(timeout_sec=0.01)

    def settle(self, rounds: int = 20) -> None:
        """Spin for a moment: for what must not happen."""
        for _ in range(rounds):
            self.executor.spin_once(timeout_sec=0.01)

    def set_time(self, now_ns: int) -> None:
        """Move simulated time and wait until every node has seen it."""
        self.now_ns = now_ns
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(now_ns, 1_000_000_000)
        deadline = time.monotonic() + PATIENCE_S
        while any(node.get_clock().now().nanoseconds != now_ns for node in self._nodes):
            assert time.monotonic() < deadline, "waited in vain for the nodes to follow /clock"
            self._clock.publish(message)
            self.executor.spin_once(timeout_sec=0.02)

    def publisher(self, kind: Any, topic: str, profile: QoSProfile, matched: bool = True) -> Any:
        """A publisher of the bench, with its subscribers found."""
        publisher = self.helper.create_publisher(kind, topic, profile)
        if matched:
            self.spin_until(lambda: publisher.get_subscription_count() > 0, f"a subscriber of {topic}")
        return publisher

    def collect(self, kind: Any, topic: str, profile: QoSProfile) -> list[Any]:
        """A list that grows with the messages of a topic that a node publishes already."""
        messages: list[Any] = []
        self.helper.create_subscription(kind, topic, messages.append, profile)
        self.spin_until(lambda: self.helper.count_publishers(topic) > 0, f"a publisher of {topic}")
        self.settle(5)
        return messages

    def call(self, kind: Any, name: str, request: Any) -> Any:
        """Call a service of a node and return its response."""
        client = self.helper.create_client(kind, name)
        self.spin_until(client.service_is_ready, f"the service {name}")
        future = client.call_async(request)
        self.spin_until(future.done, f"a response of {name}")
        return future.result()

    def close(self) -> None:
        """Stop the nodes and end the context."""
        for node in self._nodes:
            node.stop()
        self.executor.shutdown()
        for node in [*self._nodes, self.helper]:
            node.destroy_node()
        self._nodes.clear()
        del node
        # A lifecycle node's services are on the network until its state machine is freed.
        gc.collect()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def ros() -> Iterator[RosBench]:
    bench = RosBench()
    yield bench
    bench.close()
