"""The message that tells Autoware's monitors how long a node worked."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from std_msgs.msg import Float64

from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.processing_time import ProcessingTime, message_class


def offer(monkeypatch: pytest.MonkeyPatch, package: str) -> type:
    """Make a package look installed, with a Float64Stamped of its own."""
    stamped = type("Float64Stamped", (), {})
    module = ModuleType(f"{package}.msg")
    module.Float64Stamped = stamped  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package, ModuleType(package))
    monkeypatch.setitem(sys.modules, f"{package}.msg", module)
    return stamped


def test_autoware_s_message_is_preferred_and_the_older_one_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert message_class() is Float64
    older = offer(monkeypatch, "tier4_debug_msgs")
    assert message_class() is older
    newer = offer(monkeypatch, "autoware_internal_debug_msgs")
    assert message_class() is newer


def test_a_time_is_published_below_the_node_s_name(ros: Any) -> None:
    times = ProcessingTime(ros.helper)
    found = ros.collect(Float64, "/bench/debug/processing_time_ms", qos.STATE)
    times.publish(12.5)
    ros.spin_until(lambda: found, "the time")
    assert found[0].data == 12.5
    times.destroy()
