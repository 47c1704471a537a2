"""The chunk executor's parameters, and the control loop they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.control import so101
from vla_simd_ros.control.blending import ACT_COEFFICIENT, BLENDINGS, LARGEST_COEFFICIENT, blending
from vla_simd_ros.control.chunk import NANOSECONDS
from vla_simd_ros.control.control_loop import ActionKind, LoopConfig, Starvation
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.nodes.executor_limits import FROM_TOPIC, LimitParameters, first_limits
from vla_simd_ros.nodes.outputs import OUTPUTS
from vla_simd_ros.nodes.parameters import LONGEST_S, Param, ParameterError
from vla_simd_ros.thread_scheduling import MOST_PRIORITY

PARAMETERS = [
    Param("joints", so101.JOINTS, "Joints (or components of a twist) to command, in the robot's order."),
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
        "How a chunk is joined to the plan in execution: replace it, move over linearly (real_time: unless "
        "the chunk continues the committed rows), average as ACT does, or as LeRobot's client does.",
        choices=BLENDINGS,
    ),
    Param("blending_steps", 5, "Control steps that linear blending takes.", minimum=1, maximum=1000),
    Param(
        "ensemble_coefficient",
        ACT_COEFFICIENT,
        "Decay of the weights of a temporal ensemble, per chunk; ACT's temporal_ensemble_coeff.",
        minimum=-LARGEST_COEFFICIENT,
        maximum=LARGEST_COEFFICIENT,
    ),
    Param(
        "output",
        "joint_trajectory",
        "Message of the commands: trajectory_msgs/JointTrajectory on joint_trajectory, "
        "std_msgs/Float64MultiArray on commands, sensor_msgs/JointState on joint_command, "
        "geometry_msgs/TwistStamped on twist, autoware_planning_msgs/Trajectory on trajectory, or "
        "nav_msgs/Path on path.",
        choices=tuple(OUTPUTS),
    ),
    Param("frame_id", "", "Frame of a twist, or of a vehicle's trajectory or path."),
    Param("dry_run", False, "Compute and publish state, but command nothing."),
    Param(
        "position_lower",
        so101.LOWER,
        "Lower position limits, radians or metres, one for all joints or one for each.",
    ),
    Param("position_upper", so101.UPPER, "Upper position limits, likewise."),
    Param(
        "velocity_limit",
        [so101.VELOCITY],
        "Velocity limits, radians or metres per second, likewise.",
        positive=True,
    ),
    Param(
        "acceleration_limit",
        [so101.ACCELERATION],
        "Acceleration limits, per second squared, likewise. They also shape every stop.",
        positive=True,
    ),
    Param(
        "robot_description",
        "",
        "A URDF document, the name of a URDF file, or topic (the document comes from the topic "
        "robot_description, nothing is commanded before): its position and velocity limits apply besides "
        "those above, whichever is tighter. Empty: none.",
    ),
    Param(
        "start_tolerance",
        0.1,
        "How far outside its position limits a joint may be when motion starts, radians or metres; the "
        "first command is at the limit then.",
        minimum=0.0,
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
    Param(
        "realtime_priority",
        0,
        "While active, the node's threads run under SCHED_FIFO with this priority, where the user may; 0: "
        "ordinary scheduling.",
        minimum=0,
        maximum=MOST_PRIORITY,
    ),
]


@dataclass(frozen=True)
class ExecutorSettings:
    """The control loop's settings, and what only the node needs."""

    loop: LoopConfig
    limits: LimitParameters
    description_from_topic: bool
    output: str
    frame_id: str
    blending: str
    dry_run: bool
    control_period: float
    state_period: float
    stamp_tolerance_ns: int
    realtime_priority: int


def settings_from(values: Mapping[str, Any]) -> ExecutorSettings:
    """Bring the parameters together.

    Raises:
        ParameterError: they do not fit each other; names the parameter, its value and the expectation.
    """
    joints = tuple(values["joints"])
    if len(set(joints)) != len(joints) or "" in joints:
        raise ParameterError(f"joints: got {list(joints)}, expected different names, none of them empty")
    output = OUTPUTS[values["output"]]
    period = 1.0 / values["control_rate"]
    limits = LimitParameters.of(values, joints)
    if problem := output.problem(joints):
        raise ParameterError(problem)
    try:
        loop = _loop(values, limits, output.kind, period)
    except ValueError as error:
        raise ParameterError(str(error)) from error
    return ExecutorSettings(
        loop=loop,
        limits=limits,
        description_from_topic=values["robot_description"] == FROM_TOPIC,
        output=values["output"],
        frame_id=values["frame_id"],
        blending=values["blending"],
        dry_run=values["dry_run"],
        control_period=period,
        state_period=1.0 / values["state_rate"],
        stamp_tolerance_ns=_ns(values["stamp_tolerance"]),
        realtime_priority=values["realtime_priority"],
    )


def _loop(values: Mapping[str, Any], limits: LimitParameters, kind: ActionKind, period: float) -> LoopConfig:
    return LoopConfig(
        joints=limits.joints,
        kind=kind,
        limits=first_limits(limits, values["robot_description"]),
        period_ns=_ns(period),
        mode=Mode(values["mode"]),
        blending=blending(values["blending"], values["blending_steps"], values["ensemble_coefficient"]),
        starvation=Starvation(values["starvation"]),
        decay_ns=_ns(values["decay_time"]),
        starvation_timeout_ns=_ns(values["starvation_timeout"]),
        joint_timeout_ns=_ns(values["joint_timeout"]),
        policy_timeout_ns=_ns(values["policy_timeout"]),
        future_tolerance_ns=_ns(values["stamp_tolerance"]),
        max_age_ns=_ns(values["max_chunk_age"]),
        start_tolerance=values["start_tolerance"],
    )


def _ns(seconds: float) -> int:
    return round(seconds * NANOSECONDS)
