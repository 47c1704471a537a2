"""Subscribing to a topic whose last message counts, whether its publisher latches it or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node

from vla_simd_ros.nodes import qos


def subscribe_latched(node: Node, kind: Any, topic: str, callback: Callable[[Any], None]) -> list[Any]:
    """Subscriptions that receive the last message of latching publishers, and those of any other.

    A transient local subscription gets nothing from a volatile publisher, such as ``ros2 topic pub``; a
    volatile one gets nothing from before it was there. A latching publisher is heard by both: the callback
    must not mind a message twice.
    """
    # The default callbacks would warn of every volatile publisher that the latched one cannot hear.
    quiet = SubscriptionEventCallbacks(use_default_callbacks=False)
    return [
        node.create_subscription(kind, topic, callback, profile, event_callbacks=quiet)
        for profile in (qos.LATCHED, qos.NOT_LATCHED)
    ]
