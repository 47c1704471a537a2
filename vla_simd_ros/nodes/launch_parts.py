"""What the launch files share: arguments that become parameters, and nodes that start by themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
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

from vla_simd_ros.nodes.parent_death import end_with_parent

CONFIG = Path(get_package_share_directory("vla_simd_ros")) / "config"

# Each argument: default and description. An empty argument leaves the value in the parameter file alone.
COMMON_ARGUMENTS = {
    "checkpoint": ("", "Folder of the LeRobot checkpoint (pretrained_model)."),
    "cameras": ("", 'Cameras and their topics, as "front, wrist=/wrist_camera/image_raw".'),
    "instruction": ("", "Instruction to start with; messages on the topic instruction replace it."),
    "control_rate": ("", "Commands per second."),
    "mode": ("", 'When the rows of a chunk are executed: "time_aligned" or "lagged".'),
    "precision": ("", 'Arithmetic of the policy: "fp32" or "int8".'),
    "decoder": ("", 'Of action tokens: "autoregressive", "jacobi", "early_exit" or "auto".'),
    "sigma": ("", "Probability that is enough for the decoder early_exit."),
    "max_passes": ("", "Most passes of a decoder in a query; 0: no limit."),
    "query_deadline_ms": ("", "Milliseconds after which no pass of a decoder begins; 0: no limit."),
    "accept_unconverged": ("", "true: publish chunks that ran out of passes or time, marked as such."),
    "dry_run": ("", "true: compute and publish everything, command nothing."),
    "use_sim_time": ("false", "Take the time from /clock."),
    "namespace": ("", "Namespace of the nodes, and so of all their relative topics."),
    "autostart": ("true", "Configure and activate both nodes; false: leave that to a lifecycle manager."),
    "executor_params": (str(CONFIG / "chunk_executor.yaml"), "Parameter file of the chunk executor."),
    "dds_profile": (
        str(CONFIG / "fastdds_large_images.xml"),
        "Fast DDS profile of the nodes, unless FASTRTPS_DEFAULT_PROFILES_FILE is set already.",
    ),
}
POLICY_ARGUMENTS = {
    "checkpoint": str,
    "cameras": str,
    "instruction": str,
    "precision": str,
    "decoder": str,
    "sigma": float,
    "max_passes": int,
    "query_deadline_ms": float,
    "accept_unconverged": "boolean",
}
EXECUTOR_ARGUMENTS = {"control_rate": float, "mode": str, "dry_run": "boolean"}

HYBRID_ARGUMENTS = {
    "prefix_executor": (
        "",
        'What computes the first blocks: "torch" (the GPU where there is one) or "simd".',
    ),
    "prefix_cpus": ("", 'CPUs of the first blocks\' threads, as "0,1".'),
    "suffix_threads": ("", "Threads of the other blocks; 0: one for each of its CPUs."),
    "suffix_cpus": ("", 'CPUs of the other blocks\' threads, as "2,3".'),
    "reserved_cpus": ("", 'CPUs that neither side uses, as "6,7".'),
    "nice": ("", "How far both sides stand back where others want their CPUs: 0 to 19."),
    "costs": ("", "File of the blocks' costs, of vla_simd split --save-costs; empty: they are measured."),
    "hybrid_params": (str(CONFIG / "hybrid_scheduler.yaml"), "Parameter file of the hybrid scheduler."),
}
HYBRID_KINDS = {
    "prefix_executor": str,
    "prefix_cpus": "integers",
    "suffix_threads": int,
    "suffix_cpus": "integers",
    "reserved_cpus": "integers",
    "nice": int,
    "costs": str,
}


def convert(name: str, text: str, kind: Any) -> Any:
    """The value of an argument, as the node's parameter wants it. Raises ValueError naming the argument."""
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"launch argument {name}: got '{text}', expected true or false")
        return text.lower() == "true"
    try:
        if kind == "integers":
            return [int(part) for part in text.split(",")]
        return kind(text)
    except ValueError as error:
        expected = "numbers with commas" if kind == "integers" else f"a number ({kind.__name__})"
        raise ValueError(f"launch argument {name}: got '{text}', expected {expected}") from error


def given(context: LaunchContext, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not empty, converted."""
    texts = {name: LaunchConfiguration(name).perform(context) for name in kinds}
    return {name: convert(name, text, kinds[name]) for name, text in texts.items() if text}


def lifecycle_node(
    context: LaunchContext,
    name: str,
    files: Sequence[str],
    values: Mapping[str, Any],
    remappings: Sequence[tuple[str, str]] = (),
) -> list[Any]:
    """A lifecycle node that starts by itself where autostart says so, and the handlers that see to it.

    Later ``files`` replace values of earlier ones, and ``values`` those of all.
    """
    use_sim_time = convert("use_sim_time", LaunchConfiguration("use_sim_time").perform(context), "boolean")
    node = LifecycleNode(
        package="vla_simd_ros",
        exec_name=name,
        prefix=prefix(context, name),
        executable=name,
        name=name,
        namespace=LaunchConfiguration("namespace"),
        parameters=[*files, {**values, "use_sim_time": use_sim_time}],
        remappings=list(remappings),
        output="screen",
        emulate_tty=True,
    )
    # The handlers come first, so that they see the process start.
    return [*_start(node), node]


def prefix(context: LaunchContext, executable: str) -> str:
    """What a node's command begins with: what ends the node when the launch is gone, and then the prefix that
    the launch itself was given, where that is meant for this node.

    A launch hands SIGINT on to its nodes, and no other signal; a node that nobody watches any more must not
    go on moving an arm.
    """
    own = LaunchConfiguration("launch-prefix", default="").perform(context)
    meant = LaunchConfiguration("launch-prefix-filter", default="").perform(context)
    return f"{shlex.join(end_with_parent())} {own if re.match(meant, executable) else ''}"


def path_of(context: LaunchContext, argument: str) -> str:
    """The file that an argument names."""
    return str(LaunchConfiguration(argument).perform(context))


def description(arguments: Mapping[str, tuple[str, str]], nodes: Any) -> LaunchDescription:
    """A launch file with these arguments; ``nodes`` makes its actions when they are known."""
    profile = EnvironmentVariable(
        "FASTRTPS_DEFAULT_PROFILES_FILE", default_value=LaunchConfiguration("dds_profile")
    )
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in arguments.items()
    ]
    return LaunchDescription(
        [
            *declared,
            SetEnvironmentVariable("FASTRTPS_DEFAULT_PROFILES_FILE", profile),
            OpaqueFunction(function=nodes),
        ]
    )


def _start(node: LifecycleNode) -> list[RegisterEventHandler]:
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
