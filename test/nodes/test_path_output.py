"""A vehicle's plan as a path of poses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from nav_msgs.msg import Path

from vla_simd_ros.control.plan import Ahead
from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from
from vla_simd_ros.nodes.messages import nanoseconds
from vla_simd_ros.nodes.parameters import ParameterError
from vla_simd_ros.nodes.path_output import PathOutput

MS = 1_000_000
NOW = 1_000_000 * MS
COLUMNS = ["x", "y", "yaw", "longitudinal_velocity"]


class Network:
    """A node that keeps what is published."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def create_publisher(self, kind: Any, topic: str, profile: Any) -> Any:
        assert (kind, topic) == (Path, "path")
        self.publish = self.sent.append
        return self


def test_the_poses_to_come_have_their_times_and_a_stop_has_none() -> None:
    network = Network()
    output = PathOutput(network, COLUMNS, 100 * MS, "map")
    rows = np.array([[float(i), -float(i), 0.1 * i, 5.0] for i in range(4)])
    output.send(np.zeros(4), NOW, Ahead(NOW - 150 * MS + np.arange(4) * 100 * MS, rows))
    output.send(np.zeros(4), NOW + 10 * MS, None)
    path, stop = network.sent
    assert (nanoseconds(path.header.stamp), path.header.frame_id) == (NOW, "map")
    assert [nanoseconds(pose.header.stamp) - NOW for pose in path.poses] == [50 * MS, 150 * MS]
    last = path.poses[-1].pose
    assert (last.position.x, last.position.y, last.position.z) == (3.0, -3.0, 0.0)
    assert 2.0 * math.atan2(last.orientation.z, last.orientation.w) == pytest.approx(0.3)
    assert stop.poses == []
    assert stop.header.frame_id == "map"


def test_other_columns_are_refused() -> None:
    values = {param.name: param.default for param in PARAMETERS}
    limits = {"position_lower": [-1e4], "position_upper": [1e4]}
    assert settings_from({**values, **limits, "output": "path", "joints": COLUMNS}).output == "path"
    with pytest.raises(ParameterError, match="a path has the columns x, y, yaw and perhaps z"):
        settings_from({**values, **limits, "output": "path", "joints": ["x", "y"]})
