"""The demo: a simulated SO-101 with two cameras, the policy node and the chunk executor.

Without a checkpoint a random, untrained full-size IMPACT is made and moves the arm without purpose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, LogInfo, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.sim.demo_policy import image_size, random_checkpoint

SHARE = Path(get_package_share_directory("vla_simd_ros"))

# Arguments that are not handed on as they are; all others are those of policy.launch.py.
ARGUMENTS = {
    "checkpoint": ("", "Folder of the LeRobot checkpoint; empty: a random, untrained IMPACT."),
    "instruction": ("pick up the red cube", "Instruction to start with."),
    "sim_params": (str(SHARE / "config" / "robot_sim.yaml"), "Parameter file of the simulated robot."),
}


def nodes(context: LaunchContext) -> list[Any]:
    given = LaunchConfiguration("checkpoint").perform(context)
    folder = Path(given) if given else random_checkpoint(print)
    width, height = image_size(load_checkpoint(folder))
    simulation = Node(
        package="vla_simd_ros",
        executable="robot_sim_node",
        name="robot_sim_node",
        namespace=LaunchConfiguration("namespace"),
        parameters=[
            LaunchConfiguration("sim_params").perform(context),
            {"image_width": width, "image_height": height},
        ],
        output="screen",
        emulate_tty=True,
    )
    robot = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(SHARE / "launch" / "policy.launch.py")),
        launch_arguments={"checkpoint": str(folder)}.items(),
    )
    note = "" if given else " (random and untrained: the arm moves without purpose)"
    return [LogInfo(msg=f"policy: {folder}{note}"), robot, simulation]


def generate_launch_description() -> LaunchDescription:
    # The namespace is an argument of policy.launch.py too, but the simulation needs it before that is read.
    declared = {**ARGUMENTS, "namespace": ("", "Namespace of all nodes.")}
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in declared.items()
            ),
            OpaqueFunction(function=nodes),
        ]
    )
