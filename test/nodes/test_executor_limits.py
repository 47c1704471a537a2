"""Limits of the executor: parameters, and a robot description beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from vla_simd_ros.nodes.executor_limits import LimitParameters, first_limits
from vla_simd_ros.nodes.parameters import ParameterError

VALUES: dict[str, Any] = {
    "position_lower": [-1.0],
    "position_upper": [1.0, 2.0],
    "velocity_limit": [3.0],
    "acceleration_limit": [4.0, 5.0],
}
URDF = (
    '<robot name="r"><joint name="pan" type="revolute"><limit lower="-0.5" upper="9" velocity="9"/></joint>'
    '<joint name="lift" type="continuous"><limit velocity="{velocity}"/></joint></robot>'
)


def parameters(**changes: Any) -> LimitParameters:
    return LimitParameters.of({**VALUES, **changes}, ("pan", "lift"))


def test_the_tighter_limit_applies() -> None:
    limits = parameters().described(URDF.format(velocity="0.7"))
    assert limits.lower.tolist() == [-0.5, -1.0]
    assert limits.upper.tolist() == [1.0, 2.0]
    assert limits.velocity.tolist() == [3.0, 0.7]
    assert limits.acceleration.tolist() == [4.0, 5.0]


def test_without_a_description_the_parameters_apply() -> None:
    for description in ("", "topic"):
        limits = first_limits(parameters(), description)
        assert (limits.lower.tolist(), limits.velocity.tolist()) == ([-1.0, -1.0], [3.0, 3.0])


def test_a_description_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "robot.urdf"
    file.write_text(URDF.format(velocity="0.7"))
    assert first_limits(parameters(), str(file)).velocity.tolist() == [3.0, 0.7]
    assert first_limits(parameters(), file.read_text()).velocity.tolist() == [3.0, 0.7]
    with pytest.raises(ParameterError, match=r"robot_description: .*nowhere"):
        first_limits(parameters(), str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"position_lower": [-1.0, 2.5]},
            r"position limits of joint 'lift' are 2\.5 to 2\.0, expected lower",
        ),
        ({"position_upper": [float("nan")]}, "position limits of joint 'pan' are -1.0 to nan"),
        ({"velocity_limit": [float("inf")]}, "velocity limit of joint 'pan' is inf"),
        ({"acceleration_limit": [1.0, 0.0]}, "acceleration limit of joint 'lift' is 0.0"),
    ],
)
def test_limits_that_make_no_sense_name_the_joint(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parameters(**changes).alone()


@pytest.mark.parametrize("velocity", ["0", "-1", "nan"])
def test_a_description_without_a_speed_names_the_joint(velocity: str) -> None:
    with pytest.raises(ValueError, match="velocity limit of joint 'lift' is"):
        parameters().described(URDF.format(velocity=velocity))


def test_missing_joints_and_wrong_counts_are_named() -> None:
    with pytest.raises(ParameterError, match=r"no movable joints \['pan', 'lift'\]"):
        parameters().described("<robot/>")
    with pytest.raises(ParameterError, match="velocity_limit: got 3 values"):
        parameters(velocity_limit=np.ones(3).tolist())
