"""Layouts and commands for plots name fields of messages that there are."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vla_simd_ros.recording.bag import known_types, message_type

ROOT = Path(__file__).parents[2]
LAYOUT = ROOT / "config" / "plotjuggler_layout.xml"
TOPICS = {
    "query_timing": message_type("QueryTiming"),
    "executor_state": message_type("ExecutorState"),
    "latency_budget": message_type("LatencyBudget"),
    "policy_node/debug/processing_time_ms": "std_msgs/msg/Float64",
}
COMMANDS = re.findall(r"^rqt_plot (.+)$", (ROOT / "docs" / "ros.md").read_text(), re.MULTILINE)


def curves() -> list[str]:
    return [curve.attrib["name"] for curve in ElementTree.parse(LAYOUT).iter("curve")]


def numbers(topic: str) -> set[str]:
    """The fields of a topic that can be drawn."""
    fields = known_types().fielddefs[TOPICS[topic]][1]
    return {name for name, (_, detail) in fields if isinstance(detail, tuple) and detail[0] in (
        "float64", "uint8", "uint32", "uint64", "int32", "bool")}  # fmt: skip


def check(curve: str) -> None:
    topic, _, field = curve.removeprefix("/").rpartition("/")
    assert topic in TOPICS, curve
    assert field in numbers(topic), curve


def test_every_curve_of_the_layout_is_a_field() -> None:
    found = curves()
    assert len(found) > 20 and len(set(found)) == len(found)
    for curve in found:
        check(curve)


def test_the_layout_is_built_as_plotjuggler_reads_it() -> None:
    root = ElementTree.parse(LAYOUT).getroot()
    assert root.tag == "root"
    (tabs,) = root.findall("tabbed_widget")
    assert tabs.find("currentTabIndex") is not None
    for tab in tabs.findall("Tab"):
        containers = tab.findall("Container")
        assert len(containers) == int(tab.attrib["containers"]) == 1
        (splitter,) = containers[0].findall("DockSplitter")
        areas = splitter.findall("DockArea")
        assert len(areas) == int(splitter.attrib["count"])
        assert len(splitter.attrib["sizes"].split(";")) == len(areas)
        assert all(len(area.findall("plot")) == 1 for area in areas)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_documented_commands_plot_fields(command: str) -> None:
    for curve in command.split():
        topic, *fields = curve.split(":")
        first = topic.rpartition("/")
        for field in [first[2], *fields]:
            check(f"{first[0]}/{field}")


def test_there_are_documented_commands() -> None:
    assert len(COMMANDS) >= 2
