"""The policy node and the chunk executor: what a robot with its own cameras and controllers needs."""

from __future__ import annotations

from typing import Any

from launch import LaunchContext, LaunchDescription

from vla_simd_ros.nodes.launch_parts import (
    COMMON_ARGUMENTS,
    CONFIG,
    EXECUTOR_ARGUMENTS,
    POLICY_ARGUMENTS,
    description,
    given,
    lifecycle_node,
    path_of,
)

ARGUMENTS = {
    **COMMON_ARGUMENTS,
    "threads": ("", "Threads of the engine; 0: one per physical core."),
    "query_pacing": ("", "When queries start: continuous, on_demand or just_in_time."),
    "query_threshold": ("", "Control steps of on_demand."),
    "policy_params": (str(CONFIG / "policy_node.yaml"), "Parameter file of the policy node."),
}

_OWN = {"threads": int, "query_pacing": str, "query_threshold": int}


def nodes(context: LaunchContext) -> list[Any]:
    """Both, the one that commands first."""
    policy = given(context, {**POLICY_ARGUMENTS, **_OWN})
    return [
        *lifecycle_node(
            context,
            "chunk_executor_node",
            [path_of(context, "executor_params")],
            given(context, EXECUTOR_ARGUMENTS),
        ),
        *lifecycle_node(context, "policy_node", [path_of(context, "policy_params")], policy),
    ]


def generate_launch_description() -> LaunchDescription:
    return description(ARGUMENTS, nodes)
