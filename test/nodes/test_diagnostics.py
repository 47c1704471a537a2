"""Statuses on /diagnostics by the conventions that aggregators and monitors rely on."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.diagnostics import DiagnosticsPublisher, Level, Status
from vla_simd_ros.nodes.messages import nanoseconds
from vla_simd_ros.nodes.pipeline_node import DIAGNOSTICS_PERIOD_S


def test_levels_are_those_of_the_message() -> None:
    for level in Level:
        assert bytes([level]) == getattr(DiagnosticStatus, level.name)


def test_the_worst_message_comes_first_and_gives_the_level() -> None:
    status = Status("arm")
    status.add(Level.WARN, "warm")
    status.add(Level.ERROR, "on fire")
    status.add(Level.WARN, "noisy")
    assert status.level is Level.ERROR
    assert status.messages == ["on fire", "warm", "noisy"]


def test_a_status_names_node_part_and_hardware(ros: Any) -> None:
    publisher = DiagnosticsPublisher(ros.helper)
    found = ros.collect(DiagnosticArray, "/diagnostics", qos.STATE)
    arm = Status("arm", values={"temperature": 36.61234, "joints": 6})
    arm.add(Level.WARN, "warm")
    publisher.publish(arm, Status("cameras"))
    ros.spin_until(lambda: found, "the diagnostics")
    warm, fine = found[0].status
    assert nanoseconds(found[0].header.stamp) > 0
    assert (warm.name, warm.message, warm.level) == ("bench: arm", "warm", DiagnosticStatus.WARN)
    assert warm.hardware_id == fine.hardware_id == socket.gethostname()
    assert {pair.key: pair.value for pair in warm.values} == {"temperature": "36.61", "joints": "6"}
    assert (fine.name, fine.message, fine.level) == ("bench: cameras", "OK", DiagnosticStatus.OK)


def test_the_rate_is_that_of_diagnostic_updater() -> None:
    assert pytest.approx(1.0) == DIAGNOSTICS_PERIOD_S
