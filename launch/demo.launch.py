"""The demo: a simulated SO-101 with two cameras, the policy node and the chunk executor.

Without a checkpoint the trained policy that comes with the package moves the arm; where a policy is named, a
random, untrained one is made, which moves it without purpose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    SetLaunchConfiguration,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.nodes.launch_parts import prefix
from vla_simd_ros.sim.demo_policy import FULL_SIZE, TRAINED, TRAINED_NOTE, image_size, random_checkpoint

SHARE = Path(get_package_share_directory("vla_simd_ros"))

# The arguments that differ from those of policy.launch.py, which are this file's too.
ARGUMENTS = {
    "checkpoint": ("", "Folder of the LeRobot checkpoint; empty: the trained one of this package."),
    "policy": ("", "Which random, untrained policy is made instead, where checkpoint is empty."),
    "instruction": ("put the red cube on the left pad", "Instruction to start with."),
    "sim_params": (str(SHARE / "config" / "robot_sim.yaml"), "Parameter file of the simulated robot."),
}


def choose_checkpoint(context: LaunchContext) -> list[Any]:
    """Sets the launch argument checkpoint where it was left empty, and says what runs."""
    given = LaunchConfiguration("checkpoint").perform(context)
    if given:
        return [LogInfo(msg=f"policy: {given}")]
    policy = LaunchConfiguration("policy").perform(context)
    if not policy:
        note = LogInfo(msg=f"policy: {TRAINED_NOTE}")
        return [SetLaunchConfiguration("checkpoint", str(TRAINED)), note]
    folder = random_checkpoint(print, policy, small=policy not in FULL_SIZE)
    note = f"policy: {folder}, random and untrained: the arm moves without purpose"
    return [SetLaunchConfiguration("checkpoint", str(folder)), LogInfo(msg=note)]


def simulation(context: LaunchContext) -> list[Any]:
    """The simulated robot, with pictures of the size that the checkpoint wants."""
    checkpoint = load_checkpoint(Path(LaunchConfiguration("checkpoint").perform(context)))
    width, height = image_size(checkpoint)
    node = Node(
        package="vla_simd_ros",
        executable="robot_sim_node",
        exec_name="robot_sim_node",
        prefix=prefix(context, "robot_sim_node"),
        name="robot_sim_node",
        namespace=LaunchConfiguration("namespace"),
        parameters=[
            LaunchConfiguration("sim_params").perform(context),
            {"image_width": width, "image_height": height},
        ],
        output="screen",
        emulate_tty=True,
    )
    return [node]


def generate_launch_description() -> LaunchDescription:
    policy = PythonLaunchDescriptionSource(str(SHARE / "launch" / "policy.launch.py"))
    return LaunchDescription(
        [
            *(
                DeclareLaunchArgument(name, default_value=default, description=description)
                for name, (default, description) in ARGUMENTS.items()
            ),
            OpaqueFunction(function=choose_checkpoint),
            IncludeLaunchDescription(policy),
            OpaqueFunction(function=simulation),
        ]
    )
