"""Limits from a robot description."""

from __future__ import annotations

import math

import pytest

from vla_simd_ros.control.urdf import UrdfLimit, urdf_limits

ROBOT = """<?xml version="1.0"?>
<robot name="arm">
  <joint name="base" type="fixed"/>
  <joint name="pan" type="revolute"><limit lower="-1.9" upper="1.9" velocity="3" effort="1"/></joint>
  <joint name="slide" type="prismatic"><limit upper="0.4" effort="1"/></joint>
  <joint name="wheel" type="continuous"/>
  <joint name="roll" type="continuous"><limit velocity="2" effort="1"/></joint>
</robot>"""


def test_movable_joints_are_read() -> None:
    assert urdf_limits(ROBOT) == {
        "pan": UrdfLimit(-1.9, 1.9, 3.0),
        "slide": UrdfLimit(0.0, 0.4, math.inf),
        "wheel": UrdfLimit(-math.inf, math.inf, math.inf),
        "roll": UrdfLimit(-math.inf, math.inf, 2.0),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not xml", "not XML"),
        ("<model/>", "root is <model>, expected <robot>"),
        ('<robot><joint name="pan" type="revolute"/></robot>', "joint 'pan' .* has no <limit>"),
        ('<robot><joint name="a" type="revolute"><limit lower="x"/></joint></robot>', "joint 'a'"),
    ],
)
def test_a_bad_description_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        urdf_limits(text)
