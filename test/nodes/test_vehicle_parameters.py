"""The parameters for a vehicle beside Autoware fit both nodes and a driving policy."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from vla_simd_ros.nodes import executor_settings, hybrid_settings
from vla_simd_ros.nodes.param import Param, ParameterError, checked
from vla_simd_ros.nodes.policy_settings import settings_for
from vla_simd_ros.policies.base import CameraSpec, PolicySpec
from vla_simd_ros.policies.blocks import trajectory

TEXT = (Path(__file__).parents[2] / "config" / "autoware.yaml").read_text()
FILE: dict[str, Any] = yaml.safe_load(TEXT)
PLANNER = PolicySpec(
    "planner",
    {"front": CameraSpec(16, 32)},
    len(trajectory.STATE),
    0,
    len(trajectory.ACTION),
    chunk_size=20,
    n_action_steps=20,
)


def given(node: str, parameters: list[Param]) -> dict[str, Any]:
    values = FILE[f"/**/{node}"]["ros__parameters"]
    assert set(values) <= {param.name for param in parameters}
    return checked(parameters, values)


def test_y_is_quoted() -> None:
    """To the parser of ROS, unlike the one here, a plain y is a truth value."""
    assert not re.search(r"[\[,]\s*y\s*[\],]", TEXT)


def test_the_scheduler_takes_the_vehicles_motion_and_plans_in_the_map() -> None:
    values = given("hybrid_scheduler_node", hybrid_settings.PARAMETERS)
    settings = settings_for(values, PLANNER)
    assert settings.state_topic == "kinematic_state"
    assert settings.joints == trajectory.STATE
    assert settings.action_names == trajectory.ACTION


def test_columns_that_a_vehicle_does_not_have_are_refused() -> None:
    values = given("hybrid_scheduler_node", hybrid_settings.PARAMETERS)
    values["joints"] = [*trajectory.STATE[:-1], "steering"]
    with pytest.raises(ParameterError, match=r"got \['steering'\], a vehicle's motion has the columns x, y"):
        settings_for(values, PLANNER)


@pytest.mark.parametrize("output", ["path", "autoware_trajectory"])
def test_the_executor_publishes_it_either_way(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("autoware_planning_msgs")
    package.msg = ModuleType("msg")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "autoware_planning_msgs", package)
    values = given("chunk_executor_node", executor_settings.PARAMETERS)
    settings = executor_settings.settings_from({**values, "output": output})
    assert settings.frame_id == "map"
    assert tuple(settings.loop.joints) == trajectory.ACTION
