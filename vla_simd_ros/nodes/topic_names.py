"""Checks of topic names that come from parameters."""

from __future__ import annotations

from collections.abc import Iterable

from rclpy.exceptions import InvalidTopicNameException
from rclpy.expand_topic_name import expand_topic_name
from rclpy.node import Node
from rclpy.validate_full_topic_name import validate_full_topic_name

from vla_simd_ros.nodes.param import ParameterError
from vla_simd_ros.nodes.policy_settings import CameraSource


def check_topics(node: Node, cameras: Iterable[CameraSource]) -> None:
    """Raises ParameterError for a camera whose topic is no name of a topic, or that of another camera too."""
    cameras_by_topic: dict[str, str] = {}
    for camera in cameras:
        try:
            validate_full_topic_name(expand_topic_name(camera.topic, "node", "/"))
        except (ValueError, InvalidTopicNameException) as error:
            reason = str(error).splitlines()[0].split(", at ")[0]
            raise ParameterError(
                f"cameras: got topic '{camera.topic}' for '{camera.name}': {reason}"
            ) from error
        resolved = node.resolve_topic_name(camera.topic)
        if other := cameras_by_topic.get(resolved):
            raise ParameterError(
                f"cameras: '{other}' and '{camera.name}' have the same topic {resolved}, "
                "expected one for each"
            )
        cameras_by_topic[resolved] = camera.name
