"""A driving policy beside Autoware, in the place of its planner: the hybrid scheduler and the chunk executor.

Cameras, the localization's kinematic state and an instruction come in; a trajectory goes out to where
Autoware's velocity smoother takes that of its scenario planner. So smoothing, the planning validator and the
gate of vehicle commands stay where they are, and nothing here commands the vehicle.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import LogInfo

from vla_simd_ros.nodes.launch_parts import (
    COMMON_ARGUMENTS,
    CONFIG,
    EXECUTOR_ARGUMENTS,
    HYBRID_ARGUMENTS,
    HYBRID_KINDS,
    POLICY_ARGUMENTS,
    description,
    given,
    lifecycle_node,
    path_of,
)

ARGUMENTS = {
    **COMMON_ARGUMENTS,
    **HYBRID_ARGUMENTS,
    "cameras": (
        "",
        'The checkpoint\'s cameras and their topics, as "front=/sensing/camera/camera0/image_rect_color".',
    ),
    "kinematic_state": ("/localization/kinematic_state", "Topic of the vehicle's pose and velocity."),
    "command": ("/vla/command", "Topic of the command or the route as a text, std_msgs/String."),
    "trajectory": (
        "/planning/scenario_planning/scenario_selector/trajectory",
        "Topic of the plan: that which Autoware's velocity smoother reads, before its planning validator.",
    ),
    "namespace": ("vla", "Namespace of the nodes, and so of their other topics."),
    "vehicle_params": (str(CONFIG / "autoware.yaml"), "Parameters of both nodes for a vehicle."),
}


def nodes(context: LaunchContext) -> list[Any]:
    """Both, the one that plans last."""
    topics = {name: path_of(context, name) for name in ("kinematic_state", "command", "trajectory")}
    has_messages = importlib.util.find_spec("autoware_planning_msgs") is not None
    output = "autoware_trajectory" if has_messages else "path"
    kind = "autoware_planning_msgs/Trajectory" if has_messages else "nav_msgs/Path: there is no Autoware here"
    note = f"the plan goes to {topics['trajectory']} as {kind}"
    vehicle = path_of(context, "vehicle_params")
    return [
        LogInfo(msg=note),
        *lifecycle_node(
            context,
            "chunk_executor_node",
            [path_of(context, "executor_params"), vehicle],
            {"output": output, **given(context, EXECUTOR_ARGUMENTS)},
            [("trajectory", topics["trajectory"]), ("path", topics["trajectory"])],
        ),
        *lifecycle_node(
            context,
            "hybrid_scheduler_node",
            [path_of(context, "hybrid_params"), vehicle],
            given(context, {**POLICY_ARGUMENTS, **HYBRID_KINDS}),
            [("kinematic_state", topics["kinematic_state"]), ("instruction", topics["command"])],
        ),
    ]


def generate_launch_description() -> LaunchDescription:
    return description(ARGUMENTS, nodes)
