"""Topics of cameras that are no names of topics, or those of several cameras."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rclpy.node import Node

from vla_simd_ros.nodes.param import ParameterError
from vla_simd_ros.nodes.policy_settings import CameraSource
from vla_simd_ros.nodes.topic_names import check_topics


@pytest.fixture
def node(ros: Any) -> Node:
    """A node in a namespace, for which another topic's name was replaced."""
    arguments = ["--ros-args", "-r", "side/image:=/robot/front/image"]
    named = Node("policy", namespace="robot", context=ros.context, cli_args=arguments)
    ros.executor.add_node(named)
    return named


def test_names_of_topics_pass(node: Node) -> None:
    check_topics(node, [CameraSource("front", "/front/image"), CameraSource("wrist", "front/image")])


@pytest.mark.parametrize(
    ("topic", "words"),
    [("a b", "must not contain characters"), ("a//b", "repeated"), ("{robot}/x", "unknown substitution")],
)
def test_others_are_refused_by_name(node: Node, topic: str, words: str) -> None:
    with pytest.raises(ParameterError, match=f"got topic '{re.escape(topic)}' for 'front': .*{words}"):
        check_topics(node, [CameraSource("wrist", "wrist"), CameraSource("front", topic)])


@pytest.mark.parametrize("topic", ["front/image", "/robot/front/image", "side/image"])
def test_a_topic_of_two_cameras_is_refused(node: Node, topic: str) -> None:
    sources = [CameraSource("front", "front/image"), CameraSource("wrist", topic)]
    with pytest.raises(ParameterError, match="'front' and 'wrist' have the same topic /robot/front/image"):
        check_topics(node, sources)
