"""The policy node and the chunk executor: what a robot with its own cameras and controllers needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
)
from launch.conditions import IfCondition
from launch.event_handlers import OnProcessStart
from launch.events import matches_action
from launch.substitutions import EnvironmentVariable, LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition

CONFIG = Path(get_package_share_directory("vla_simd_ros")) / "config"

# Each argument: default and description. An empty argument leaves the value in the parameter file alone.
ARGUMENTS = {
    "checkpoint": ("", "Folder of the LeRobot checkpoint (pretrained_model)."),
    "cameras": ("", 'Cameras and their topics, as "front, wrist=/wrist_camera/image_raw".'),
    "instruction": ("", "Instruction to start with; messages on the topic instruction replace it."),
    "control_rate": ("", "Commands per second."),
    "mode": ("", 'When the rows of a chunk are executed: "time_aligned" or "lagged".'),
    "precision": ("", 'Arithmetic of the policy: "fp32" or "int8".'),
    "threads": ("", "Threads of the engine; 0: one per physical core."),
    "dry_run": ("", "true: compute and publish everything, command nothing."),
    "use_sim_time": ("false", "Take the time from /clock."),
    "namespace": ("", "Namespace of the nodes, and so of all their relative topics."),
    "autostart": ("true", "Configure and activate both nodes; false: leave that to a lifecycle manager."),
    "policy_params": (str(CONFIG / "policy_node.yaml"), "Parameter file of the policy node."),
    "executor_params": (str(CONFIG / "chunk_executor.yaml"), "Parameter file of the chunk executor."),
    "dds_profile": (
        str(CONFIG / "fastdds_large_images.xml"),
        "Fast DDS profile of the nodes, unless FASTRTPS_DEFAULT_PROFILES_FILE is set already.",
    ),
}

POLICY_ARGUMENTS = {"checkpoint": str, "cameras": str, "instruction": str, "precision": str, "threads": int}
EXECUTOR_ARGUMENTS = {"control_rate": float, "mode": str, "dry_run": "boolean"}


def convert(name: str, text: str, kind: Any) -> Any:
    """The value of an argument, as the node's parameter wants it. Raises ValueError naming the argument."""
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"launch argument {name}: got '{text}', expected true or false")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(
            f"launch argument {name}: got '{text}', expected a number ({kind.__name__})"
        ) from error


def given(context: LaunchContext, kinds: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are not empty, converted."""
    texts = {name: LaunchConfiguration(name).perform(context) for name in kinds}
    return {name: convert(name, text, kinds[name]) for name, text in texts.items() if text}


def start(node: LifecycleNode) -> list[RegisterEventHandler]:
    """Event handlers that configure a node when its process starts, and activate it when that succeeded."""

    def change(transition: int) -> EmitEvent:
        return EmitEvent(
            event=ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition)
        )

    autostart = IfCondition(LaunchConfiguration("autostart"))
    return [
        RegisterEventHandler(
            OnProcessStart(target_action=node, on_start=[change(Transition.TRANSITION_CONFIGURE)]),
            condition=autostart,
        ),
        RegisterEventHandler(
            OnStateTransition(
                target_lifecycle_node=node,
                start_state="configuring",
                goal_state="inactive",
                entities=[change(Transition.TRANSITION_ACTIVATE)],
                # Only the first time: later transitions are those of whoever asks for them.
                handle_once=True,
            ),
            condition=autostart,
        ),
    ]


def nodes(context: LaunchContext) -> list[Any]:
    use_sim_time = convert("use_sim_time", LaunchConfiguration("use_sim_time").perform(context), "boolean")
    actions: list[Any] = []
    for name, params, kinds in (
        ("chunk_executor_node", "executor_params", EXECUTOR_ARGUMENTS),
        ("policy_node", "policy_params", POLICY_ARGUMENTS),
    ):
        node = LifecycleNode(
            package="vla_simd_ros",
            executable=name,
            name=name,
            namespace=LaunchConfiguration("namespace"),
            parameters=[
                LaunchConfiguration(params).perform(context),
                {**given(context, kinds), "use_sim_time": use_sim_time},
            ],
            output="screen",
            emulate_tty=True,
        )
        # The handlers come first, so that they see the process start.
        actions += [*start(node), node]
    return actions


def generate_launch_description() -> LaunchDescription:
    profile = EnvironmentVariable(
        "FASTRTPS_DEFAULT_PROFILES_FILE", default_value=LaunchConfiguration("dds_profile")
    )
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in ARGUMENTS.items()
            ),
            SetEnvironmentVariable("FASTRTPS_DEFAULT_PROFILES_FILE", profile),
            OpaqueFunction(function=nodes),
        ]
    )
