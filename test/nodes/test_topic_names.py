"""Topics of cameras that are no names of topics."""

from __future__ import annotations

import re

import pytest

from vla_simd_ros.nodes.param import ParameterError
from vla_simd_ros.nodes.policy_settings import CameraSource
from vla_simd_ros.nodes.topic_names import check_topics


def test_names_of_topics_pass() -> None:
    check_topics([CameraSource("front", "/robot/front/image_raw"), CameraSource("wrist", "wrist")])


@pytest.mark.parametrize(
    ("topic", "words"),
    [("a b", "must not contain characters"), ("a//b", "repeated"), ("{robot}/x", "unknown substitution")],
)
def test_others_are_refused_by_name(topic: str, words: str) -> None:
    with pytest.raises(ParameterError, match=f"got topic '{re.escape(topic)}' for 'front': .*{words}"):
        check_topics([CameraSource("wrist", "wrist"), CameraSource("front", topic)])
