"""The chunk executor's parameters, and the control loop they describe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.control.blending import blending
from vla_simd_ros.control.chunk import NANOSECONDS
from vla_simd_ros.control.control_loop import ActionKind, LoopConfig, Starvation
from vla_simd_ros.control.limits import JointLimits
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.control.urdf import UrdfLimit, urdf_limits
from vla_simd_ros.nodes.outputs import OUTPUTS, TWIST_COMPONENTS
from vla_simd_ros.nodes.parameters import LONGEST_S, Param, ParameterError, per_joint
from vla_simd_ros.nodes.policy_settings import SO101_JOINTS, SO101_LOWER, SO101_UPPER

PARAMETERS = [
    Param("joints", SO101_JOINTS, "Joints (or components of a twist) to command, in the robot's order."),
    Param("control_rate", 30.0, "Commands per second.", minimum=1.0, maximum=1000.0),
    Param(
        "mode",
        Mode.TIME_ALIGNED.value,
        "time_aligned: a chunk starts at the row whose time has come. lagged: it starts at row 0 on arrival.",
        choices=tuple(mode.value for mode in Mode),
    ),
    Param(
        "blending",
        "replace",
        "How a chunk is joined to the one before: replace it at once, or move over linearly.",
        choices=("replace", "linear"),
    ),
    Param("blending_steps", 5, "Control steps that linear blending takes.", minimum=1, maximum=1000),
    Param(
        "output",
        "joint_trajectory",
        "Message of the commands: trajectory_msgs/JointTrajectory on joint_trajectory, "
        "std_msgs/Float64MultiArray on commands, sensor_msgs/JointState on joint_command, or "
        "geometry_msgs/TwistStamped on twist.",
        choices=tuple(OUTPUTS),
    ),
    Param("frame_id", "", "Frame of a twist."),
    Param("dry_run", False, "Compute and publish state, but command nothing."),
    Param(
        "position_lower",
        SO101_LOWER,
        "Lower position limits, radians or metres, one for all joints or one for each.",
    ),
    Param("position_upper", SO101_UPPER, "Upper position limits, likewise."),
    Param("velocity_limit", [2.0], "Velocity limits, radians or metres per second, likewise.", positive=True),
    Param(
        "acceleration_limit",
        [15.0],
        "Acceleration limits, per second squared, likewise. They also shape every stop.",
        positive=True,
    ),
    Param(
        "robot_description",
        "",
        "A URDF document, or the name of a URDF file: its position and velocity limits apply besides those "
        "above, whichever is tighter. Empty: none.",
    ),
    Param(
        "starvation",
        Starvation.HOLD.value,
        "While rows are missing: hold, or (velocities only) decay towards zero.",
        choices=tuple(behaviour.value for behaviour in Starvation),
    ),
    Param(
        "decay_time",
        0.3,
        "Seconds in which a decaying velocity falls to 1/e.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "starvation_timeout",
        2.0,
        "Starved for this many seconds, the executor stops commanding until the next chunk.",
        minimum=0.0,
        maximum=LONGEST_S,
    ),
    Param(
        "joint_timeout",
        0.5,
        "Joint states silent for longer hold the arm, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "policy_timeout",
        5.0,
        "Chunks silent for longer hold the arm, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "stamp_tolerance",
        0.05,
        "How far in the future a chunk's or joint state's stamp may lie, seconds.",
        minimum=0.0,
        maximum=10.0,
    ),
    Param(
        "max_chunk_age",
        10.0,
        "A chunk whose observation is older on arrival is rejected, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "state_rate",
        10.0,
        "Executor states per second, besides those on events.",
        minimum=0.1,
        maximum=1000.0,
    ),
]


@dataclass(frozen=True)
class ExecutorSettings:
    """The control loop's settings, and what only the node needs."""

    loop: LoopConfig
    output: str
    frame_id: str
    blending: str
    dry_run: bool
    control_period: float
    state_period: float
    stamp_tolerance_ns: int


def settings_from(values: Mapping[str, Any]) -> ExecutorSettings:
    """Bring the parameters together.

    Raises:
        ParameterError: they do not fit each other; names the parameter, its value and the expectation.
    """
    joints = tuple(values["joints"])
    if len(set(joints)) != len(joints) or "" in joints:
        raise ParameterError(f"joints: got {list(joints)}, expected different names, none of them empty")
    kind = OUTPUTS[values["output"]].kind
    if values["output"] == "twist_stamped" and set(joints) != set(TWIST_COMPONENTS):
        raise ParameterError(
            f"joints: got {list(joints)}, a twist has the components {list(TWIST_COMPONENTS)}"
        )
    period = 1.0 / values["control_rate"]
    try:
        loop = _loop(values, joints, kind, period)
    except ValueError as error:
        raise ParameterError(str(error)) from error
    return ExecutorSettings(
        loop=loop,
        output=values["output"],
        frame_id=values["frame_id"],
        blending=values["blending"],
        dry_run=values["dry_run"],
        control_period=period,
        state_period=1.0 / values["state_rate"],
        stamp_tolerance_ns=_ns(values["stamp_tolerance"]),
    )


def _loop(values: Mapping[str, Any], joints: tuple[str, ...], kind: ActionKind, period: float) -> LoopConfig:
    return LoopConfig(
        joints=joints,
        kind=kind,
        limits=_limits(values, joints),
        period_ns=_ns(period),
        mode=Mode(values["mode"]),
        blending=blending(values["blending"], values["blending_steps"]),
        starvation=Starvation(values["starvation"]),
        decay_ns=_ns(values["decay_time"]),
        starvation_timeout_ns=_ns(values["starvation_timeout"]),
        joint_timeout_ns=_ns(values["joint_timeout"]),
        policy_timeout_ns=_ns(values["policy_timeout"]),
        future_tolerance_ns=_ns(values["stamp_tolerance"]),
        max_age_ns=_ns(values["max_chunk_age"]),
    )


def _limits(values: Mapping[str, Any], joints: tuple[str, ...]) -> JointLimits:
    described = _described(values["robot_description"], joints)
    lower = np.maximum(per_joint(values, "position_lower", joints), [limit.lower for limit in described])
    upper = np.minimum(per_joint(values, "position_upper", joints), [limit.upper for limit in described])
    velocity = np.minimum(
        per_joint(values, "velocity_limit", joints), [limit.velocity for limit in described]
    )
    acceleration = np.array(per_joint(values, "acceleration_limit", joints), dtype=np.float64)
    return JointLimits(lower, upper, velocity, acceleration)


def _described(description: str, joints: tuple[str, ...]) -> list[UrdfLimit]:
    """Limits of the joints from a robot description; infinite without one."""
    if not description:
        return [UrdfLimit(-math.inf, math.inf, math.inf)] * len(joints)
    text = description
    if not description.lstrip().startswith("<"):
        try:
            text = Path(description).read_text(encoding="utf-8")
        except OSError as error:
            raise ParameterError(f"robot_description: {error}") from error
    limits = urdf_limits(text)
    missing = [joint for joint in joints if joint not in limits]
    if missing:
        raise ParameterError(f"robot_description: has no movable joints {missing}, it has {sorted(limits)}")
    return [limits[joint] for joint in joints]


def _ns(seconds: float) -> int:
    return round(seconds * NANOSECONDS)
