"""The lifecycle around a pipeline, with one that only notes what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from vla_simd_ros.nodes.diagnostics import Level, Status
from vla_simd_ros.nodes.parameters import Param, ParameterError
from vla_simd_ros.nodes.pipeline_node import PipelineNode

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class NotingPipeline:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.activation_fails = False

    def activate(self) -> None:
        if self.activation_fails:
            raise RuntimeError("the motors are locked")
        self.calls.append("activate")

    def deactivate(self) -> None:
        self.calls.append("deactivate")

    def clock_jumped(self) -> None:
        self.calls.append("clock_jumped")

    def close(self) -> bool:
        self.calls.append("close")
        return False

    def statuses(self) -> list[Status]:
        return [Status("pump", Level.OK, ["pumping"])]


class NotingNode(PipelineNode[NotingPipeline]):
    def __init__(self, **node_options: Any) -> None:
        parameters = [
            Param("size", 1, "Size of the pump.", minimum=0, maximum=9),
            Param("speed", 1, "Strokes per second.", minimum=0, maximum=9, live=True),
            Param("stroke", 0.5, "Length of a stroke, metres.", positive=True, live=True),
        ]
        super().__init__("noting_node", "pump", parameters, (ParameterError,), **node_options)
        self.made: list[NotingPipeline] = []

    def _change(self, changes: Mapping[str, Any]) -> None:
        if changes.get("speed") == 7:
            raise ParameterError("speed: got 7, at which the pump hums")
        self.made[-1].calls.append(f"{dict(changes)}")

    def _make_pipeline(self, values: dict[str, Any]) -> NotingPipeline:
        if not values["size"]:
            raise ParameterError("size: got 0, a pump has one")
        self.made.append(NotingPipeline())
        return self.made[-1]


def test_a_pipeline_lives_from_configure_to_cleanup(ros: Any) -> None:
    node = ros.add(NotingNode)
    for transition in ("configure", "activate", "deactivate", "cleanup", "configure"):
        assert getattr(node, f"trigger_{transition}")() == SUCCESS
    first, second = node.made
    assert first.calls == ["activate", "deactivate", "close"]
    assert second.calls == []
    assert node.stop() is False  # what the pipeline said when it was closed
    assert second.calls == ["close"]
    assert node.stop() is True


def test_a_failed_configuration_says_why_and_can_be_repeated(
    ros: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    node = ros.add(NotingNode, size=0)
    assert node.trigger_configure() == FAILURE
    assert "configure failed: size: got 0, a pump has one" in capfd.readouterr().err
    node.set_parameters([Parameter("size", value=3)])
    assert node.trigger_configure() == SUCCESS


def test_a_failed_activation_leaves_the_pipeline(ros: Any, capfd: pytest.CaptureFixture[str]) -> None:
    node = ros.add(NotingNode)
    node.trigger_configure()
    node.made[0].activation_fails = True
    assert node.trigger_activate() == FAILURE
    assert "the motors are locked" in capfd.readouterr().err
    node.made[0].activation_fails = False
    assert node.trigger_activate() == SUCCESS


def test_a_clock_jump_reaches_the_pipeline(ros: Any) -> None:
    node = ros.add(NotingNode)
    ros.set_time(ros.now_ns + 5_000_000_000)  # nothing to tell yet
    node.trigger_configure()
    ros.set_time(ros.now_ns - 2_000_000_000)
    assert "clock_jumped" in node.made[0].calls


def test_diagnostics_before_and_after_configuration(ros: Any) -> None:
    node = ros.add(NotingNode)
    seen: list[tuple[str, str]] = []

    def note(message: DiagnosticArray) -> None:
        seen.extend((status.name, status.message) for status in message.status if "pump" in status.name)

    ros.helper.create_subscription(DiagnosticArray, "/diagnostics", note, 10)
    ros.spin_until(lambda: ("noting_node: pump", "not configured") in seen, "diagnostics")
    node.trigger_configure()
    ros.spin_until(lambda: ("noting_node: pump", "pumping") in seen, "diagnostics of the pipeline")


def test_a_live_parameter_can_be_set_while_the_node_is_active(ros: Any) -> None:
    node = ros.add(NotingNode, speed=2)
    assert node.set_parameters([Parameter("speed", value=3)])[0].successful
    assert node.made == [], "before, it is one as the others"
    node.trigger_configure()
    node.trigger_activate()
    assert node.set_parameters([Parameter("speed", value=4)])[0].successful
    assert node.made[0].calls == ["activate", "{'speed': 4}"]
    for name, value, words in (
        ("speed", 10, "speed: got 10, expected 0 to 9"),
        ("speed", 7, "at which the pump hums"),
        ("size", 2, "size: the node is active; clean it up first"),
    ):
        result = node.set_parameters([Parameter(name, value=value)])[0]
        assert not result.successful and words in result.reason
    together = [Parameter("speed", value=5), Parameter("size", value=2)]
    assert not node.set_parameters_atomically(together).successful
    assert node.made[0].calls == ["activate", "{'speed': 4}"]
    assert (node.get_parameter("speed").value, node.get_parameter("size").value) == (4, 1)
    together = [Parameter("speed", value=6), Parameter("stroke", value=2)]
    assert node.set_parameters_atomically(together).successful
    assert node.made[0].calls[-1] == "{'speed': 6, 'stroke': 2.0}"


def test_the_range_of_a_parameter_is_described(ros: Any) -> None:
    descriptor = ros.add(NotingNode).describe_parameter("speed")
    assert descriptor.description == "Strokes per second."
    assert descriptor.additional_constraints == "0 to 9"
