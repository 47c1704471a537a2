"""The hybrid scheduler and the chunk executor: a policy on two executors whose frames overlap."""

from __future__ import annotations

from typing import Any

from launch import LaunchContext, LaunchDescription

from vla_simd_ros.nodes.launch_parts import (
    COMMON_ARGUMENTS,
    EXECUTOR_ARGUMENTS,
    HYBRID_ARGUMENTS,
    HYBRID_KINDS,
    POLICY_ARGUMENTS,
    description,
    given,
    lifecycle_node,
    path_of,
)


def nodes(context: LaunchContext) -> list[Any]:
    """Both, the one that commands first."""
    return [
        *lifecycle_node(
            context,
            "chunk_executor_node",
            [path_of(context, "executor_params")],
            given(context, EXECUTOR_ARGUMENTS),
        ),
        *lifecycle_node(
            context,
            "hybrid_scheduler_node",
            [path_of(context, "hybrid_params")],
            given(context, {**POLICY_ARGUMENTS, **HYBRID_KINDS}),
        ),
    ]


def generate_launch_description() -> LaunchDescription:
    return description({**COMMON_ARGUMENTS, **HYBRID_ARGUMENTS}, nodes)
