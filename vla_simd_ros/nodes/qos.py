"""Quality-of-service profiles of the topics."""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy


def _profile(depth: int, reliable: bool, latched: bool = False) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


CAMERA = _profile(depth=5, reliable=False)
"""Sensor data: a lost frame is not sent again."""
JOINTS = _profile(depth=100, reliable=False)
"""Best effort matches every publisher; the depth keeps samples to interpolate between."""
LATCHED = _profile(depth=1, reliable=True, latched=True)
"""Instruction and epoch: a node that comes later gets the last one."""
NOT_LATCHED = _profile(depth=1, reliable=True)
CHUNK = _profile(depth=1, reliable=True)
"""Only the newest chunk matters."""
COMMAND = _profile(depth=1, reliable=True)
STATE = _profile(depth=10, reliable=True)
"""State, timing and diagnostics."""
