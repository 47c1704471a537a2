"""Diagnostics in words on /diagnostics, by the conventions of diagnostic_updater.

Every status is named "node: part", carries the hardware it is about, and is published once a second whether
or not it has changed, so that an aggregator sees by its absence that a node is gone and calls it stale. (That
package is in no list of Python wheels, so a publisher of our own serves both kinds of installation.)
"""

from __future__ import annotations

import enum
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from vla_simd_ros.nodes import qos


class Level(enum.IntEnum):
    """Severity, as in diagnostic_msgs; STALE, its fourth, is for aggregators to give.

    OK: works as it should. WARN: works, but someone should look at it. ERROR: does not do its job.
    """

    OK = 0
    WARN = 1
    ERROR = 2


@dataclass
class Status:
    """One part of a node: what is wrong with it, worst first, and numbers."""

    part: str
    level: Level = Level.OK
    messages: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, level: Level, message: str) -> None:
        """Note a fault; the worst level noted is the part's level."""
        worse = level > self.level
        self.messages.insert(0 if worse else len(self.messages), message)
        self.level = max(self.level, level)


class DiagnosticsPublisher:
    """Publishes the statuses of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", qos.STATE)
        self._hardware = socket.gethostname()

    def publish(self, *statuses: Status) -> None:
        """Publish the statuses, stamped with the node's clock."""
        message = DiagnosticArray(status=[self._message(status) for status in statuses])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def _message(self, status: Status) -> DiagnosticStatus:
        return DiagnosticStatus(
            level=bytes([status.level]),
            name=f"{self._node.get_fully_qualified_name().lstrip('/')}: {status.part}",
            message="; ".join(status.messages) or "OK",
            hardware_id=self._hardware,
            values=_key_values(status.values),
        )


def _key_values(values: Mapping[str, Any]) -> list[KeyValue]:
    return [
        KeyValue(key=key, value=f"{value:.4g}" if isinstance(value, float) else str(value))
        for key, value in values.items()
    ]
