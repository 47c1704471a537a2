"""The dependencies that rosdep installs."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path


def test_nothing_is_left_to_pip() -> None:
    """Where the system's Python is not pip's to change, rosdep would give up on all dependencies."""
    root = ET.parse(Path(__file__).parents[1] / "package.xml").getroot()
    keys = [element.text or "" for element in root if element.tag.endswith("depend")]
    assert {"rclpy", "cv_bridge", "message_filters", "launch_ros", "pybind11-dev"} <= set(keys)
    assert not [key for key in keys if key.endswith("-pip")]
