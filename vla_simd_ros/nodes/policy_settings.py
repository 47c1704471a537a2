"""The policy node's parameters, and what they mean for a loaded policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.execution import recommended_pacing
from vla_simd_ros.control import so101
from vla_simd_ros.control.chunk import LONGEST_STEP_S, NANOSECONDS
from vla_simd_ros.control.delay_distribution import FORMS, DelayDistribution, delay_distribution
from vla_simd_ros.control.query_timing import DEFAULT_THRESHOLD, Pacing, QueryPacing, chosen_pacing
from vla_simd_ros.control.schedule import SupplyError
from vla_simd_ros.control.units import UNITS, JointUnits
from vla_simd_ros.executors.settings import EngineSettings, settings
from vla_simd_ros.graph.int8 import FP32, INT8
from vla_simd_ros.graph.int8_groups import int8_setting
from vla_simd_ros.inference import EXECUTORS
from vla_simd_ros.nodes.images import COLOUR_ORDERS, PictureSettings
from vla_simd_ros.nodes.param import LONGEST_S, Param, ParameterError, per_joint
from vla_simd_ros.nodes.query_decoding import DECODING_PARAMETERS
from vla_simd_ros.nodes.query_sampling import SAMPLING_PARAMETERS
from vla_simd_ros.nodes.vehicle_motion import COLUMNS
from vla_simd_ros.policies.base import PolicySpec

LONGEST_INSTRUCTION = 4096
"""Characters of an instruction; a text beyond that is a mistake, and every chunk would carry it."""

JOINT_STATES, ODOMETRY = "joint_states", "odometry"
STATE_TOPICS = {JOINT_STATES: "joint_states", ODOMETRY: "kinematic_state"}

ENGINE_PARAMETERS = ("threads", "isa", "convolution", "waiting", "spin_us", "schedule")
"""Settings of the engine that are parameters of the same name, besides affinity: ROS has no empty list."""

ANY_CPU = (-1,)


def engine_parameter(name: str) -> Param:
    """A setting of the engine as a parameter."""
    setting = settings()[name]
    return Param(
        name,
        getattr(EngineSettings(), name),
        f"Engine: {setting.description}.",
        minimum=setting.minimum,
        maximum=setting.maximum,
        choices=setting.choices,
    )


CHECKPOINT = Param("checkpoint", "", "Folder of the LeRobot checkpoint (pretrained_model) to run.")

PRECISION_PARAMETERS = [
    Param(
        "precision", FP32, "Arithmetic of the policy; int8: of all groups of layers.", choices=(FP32, INT8)
    ),
    Param("int8", "", "Groups of layers in int8, with commas: their names, all, or auto; empty: none."),
]

SETTINGS = Param(
    "settings",
    "auto",
    "Engine: where its settings come from. auto: those of vla_simd tune for such a checkpoint on this "
    "machine, where there are any; default; or a file of vla_simd tune. The parameters below replace "
    "single ones where they are not at their default.",
)

QUERY_PARAMETERS = [
    Param(
        "cameras",
        "",
        "The checkpoint's cameras and their topics, as 'front, wrist=/wrist_camera/image_raw'. A camera "
        "without a topic has camera/<name>/image_raw. Empty: all of the checkpoint's cameras.",
    ),
    Param(
        "image_transport",
        "raw",
        "raw: sensor_msgs/Image. compressed: sensor_msgs/CompressedImage on <topic>/compressed.",
        choices=("raw", "compressed"),
    ),
    Param(
        "resize_images",
        False,
        "Whether pictures of another size than the checkpoint's are resized (bilinear, as LeRobot's server "
        "does); if not, they are refused.",
    ),
    Param(
        "unnamed_colours",
        COLOUR_ORDERS[0],
        "What pictures of the encoding 8UC3 hold, which does not tell.",
        choices=COLOUR_ORDERS,
    ),
    Param(
        "state_source",
        JOINT_STATES,
        "Where the policy's state comes from. joint_states: sensor_msgs/JointState on joint_states. "
        "odometry: nav_msgs/Odometry of a vehicle on kinematic_state; joints are then columns of its motion.",
        choices=(JOINT_STATES, ODOMETRY),
    ),
    Param("joints", so101.JOINTS, "Joints of the policy's state, in the order it was trained with."),
    Param(
        "action_names",
        [""],
        "Names of the columns of an action chunk; one empty name: the same as joints.",
    ),
    Param(
        "joint_units",
        ["rad"],
        "Units of the policy's state and actions, one for all joints or one for each; joint_states and "
        "chunks are in radians. LeRobot's SO-101 has deg for the arm and range_0_100 for the gripper.",
        choices=UNITS,
    ),
    Param("joint_lower", so101.LOWER, "Radians at the lower end of each joint's range, for the range units."),
    Param("joint_upper", so101.UPPER, "Radians at the upper end of each joint's range, for the range units."),
    Param("instruction", "", "Instruction at the start, until one arrives on the topic instruction."),
    Param(
        "step_period",
        1.0 / 30.0,
        "Seconds between two rows of a chunk: the period of the data the policy was trained on.",
        positive=True,
        maximum=LONGEST_STEP_S,
    ),
    Param(
        "window",
        0,
        "Rows of a chunk that may be executed; 0: as many as the checkpoint says (n_action_steps).",
        minimum=0,
    ),
    *SAMPLING_PARAMETERS,
    *DECODING_PARAMETERS,
    Param(
        "query_pacing",
        "",
        "When queries start. continuous: back to back. on_demand: when at most query_threshold control steps "
        "have a row left. just_in_time: as late as the longest recent delay lets the next chunk be in time. "
        "The last two follow the executor's reports on executor_state; until one arrives, back to back. "
        "Empty: as the checkpoint says, else on_demand where query_threshold is given, else continuous.",
        choices=("", *(pacing.value for pacing in QueryPacing)),
    ),
    Param(
        "query_threshold",
        -1,
        f"Control steps of on_demand; -1: as the checkpoint says, else {DEFAULT_THRESHOLD}.",
        minimum=-1,
    ),
    Param(
        "sync_slop",
        0.02,
        "Largest difference of capture times in a set of frames, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "history_tolerance",
        0.0,
        "For policies that look at several observation steps, one step_period apart: how far from its time "
        "the frame of an earlier step may be, seconds; 0: half a step_period. A step without one is that "
        "after it, and the policy is told where it can be.",
        minimum=0.0,
        maximum=LONGEST_S,
    ),
    Param(
        "stamp_tolerance",
        0.05,
        "How far in the future a sensor's stamp may lie, seconds.",
        minimum=0.0,
        maximum=10.0,
    ),
    Param(
        "max_observation_age",
        1.0,
        "An observation older than this when its query could start is not used, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "joint_max_gap",
        0.1,
        "Joint states further apart are not interpolated between, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "joint_max_extrapolation",
        0.05,
        "How far outside the received joint states the nearest one still counts, seconds.",
        minimum=0.0,
        maximum=LONGEST_S,
    ),
    Param(
        "camera_timeout",
        1.0,
        "A camera silent for longer is reported as an error, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "joint_timeout",
        0.5,
        "Joint states silent for longer are reported as an error, seconds.",
        positive=True,
        maximum=LONGEST_S,
    ),
    Param(
        "inject_delay",
        "",
        "For tests: a delay between each query's end and its chunk, which makes the policy as much slower: "
        f"{FORMS}. Empty: none.",
    ),
]
"""What is observed, how it is queried, and when."""

PARAMETERS = [
    CHECKPOINT,
    Param(
        "executor",
        "simd",
        "What computes the policy: the C++ engine, PyTorch, or (slowly) NumPy.",
        choices=EXECUTORS,
    ),
    *PRECISION_PARAMETERS,
    SETTINGS,
    *(engine_parameter(name) for name in ENGINE_PARAMETERS),
    Param("affinity", list(ANY_CPU), "CPUs that the engine's threads run on; -1: any.", minimum=-1),
    *QUERY_PARAMETERS,
]


@dataclass(frozen=True)
class CameraSource:
    """A camera of the checkpoint and the topic it comes from."""

    name: str
    topic: str


@dataclass(frozen=True)
class PolicySettings:
    """Parameters that depend on the policy, checked against it; times in nanoseconds."""

    cameras: tuple[CameraSource, ...]
    compressed: bool
    pictures: PictureSettings
    state_topic: str
    joints: tuple[str, ...]
    action_names: tuple[str, ...]
    state_units: JointUnits
    action_units: JointUnits
    step_period: float
    window: int
    pacing: Pacing
    sync_slop: float
    history_tolerance_ns: int
    stamp_tolerance_ns: int
    max_age_ns: int
    joint_max_gap_ns: int
    joint_max_extrapolation_ns: int
    camera_timeout_ns: int
    joint_timeout_ns: int
    inject_delay: DelayDistribution | None = None


def checkpoint_named(values: Mapping[str, Any]) -> None:
    """Raises ParameterError where no checkpoint is named."""
    if not values["checkpoint"]:
        raise ParameterError("checkpoint: got an empty name, expected the folder of a checkpoint")


def load_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for loading the policy.

    Raises:
        SettingError: a setting has a value that it cannot have.
        Int8GroupError: precision and int8 contradict each other.
    """
    affinity = tuple(values["affinity"])
    engine = EngineSettings(
        affinity=() if affinity == ANY_CPU else affinity,
        **{name: values[name] for name in ENGINE_PARAMETERS},
    )
    return {
        "executor": values["executor"],
        "int8": int8_setting(values["precision"], values["int8"]),
        "settings": values["settings"],
        **engine.changed(),
    }


def settings_for(values: Mapping[str, Any], spec: PolicySpec) -> PolicySettings:
    """Bring parameters and policy together.

    Raises:
        ParameterError: they do not fit each other; names the parameter, its value and the expectation.
    """
    if spec.env_state_dim:
        raise ParameterError(
            f"checkpoint: its observation.environment_state of {spec.env_state_dim} values has no topic; "
            "expected a policy of cameras and joints"
        )
    joints = _joints(values, spec)
    names = _action_names(values, joints, spec)
    window = values["window"] or spec.n_action_steps
    if window > spec.chunk_size:
        raise ParameterError(f"window: got {window}, expected at most the chunk size, {spec.chunk_size}")
    return PolicySettings(
        cameras=_cameras(values["cameras"], spec),
        compressed=values["image_transport"] == "compressed",
        pictures=PictureSettings(values["resize_images"], values["unnamed_colours"]),
        state_topic=STATE_TOPICS[values["state_source"]],
        joints=joints,
        action_names=names,
        state_units=_units(values, joints, joints),
        action_units=_units(values, joints, names),
        step_period=values["step_period"],
        window=window,
        pacing=_pacing(values),
        sync_slop=values["sync_slop"],
        history_tolerance_ns=_ns(values["history_tolerance"] or values["step_period"] / 2),
        stamp_tolerance_ns=_ns(values["stamp_tolerance"]),
        max_age_ns=_ns(values["max_observation_age"]),
        joint_max_gap_ns=_ns(values["joint_max_gap"]),
        joint_max_extrapolation_ns=_ns(values["joint_max_extrapolation"]),
        camera_timeout_ns=_ns(values["camera_timeout"]),
        joint_timeout_ns=_ns(values["joint_timeout"]),
        inject_delay=_delay(values["inject_delay"]),
    )


def _pacing(values: Mapping[str, Any]) -> Pacing:
    kind = QueryPacing(values["query_pacing"]) if values["query_pacing"] else None
    threshold = values["query_threshold"] if values["query_threshold"] >= 0 else None
    try:
        recommended = recommended_pacing(Path(values["checkpoint"])) if values["checkpoint"] else None
    except CheckpointError as error:
        raise ParameterError(f"checkpoint: {error}") from None
    return chosen_pacing(kind, threshold, recommended)


def _delay(text: str) -> DelayDistribution | None:
    try:
        return delay_distribution(text) if text else None
    except SupplyError as error:
        raise ParameterError(f"inject_delay: {error}") from None


def _ns(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def _joints(values: Mapping[str, Any], spec: PolicySpec) -> tuple[str, ...]:
    joints = tuple(values["joints"])
    if values["state_source"] == ODOMETRY and (unknown := [name for name in joints if name not in COLUMNS]):
        raise ParameterError(
            f"joints: got {unknown}, a vehicle's motion has the columns {', '.join(COLUMNS)}"
        )
    if len(set(joints)) != len(joints) or "" in joints:
        raise ParameterError(f"joints: got {list(joints)}, expected different names, none of them empty")
    if spec.state_dim and len(joints) != spec.state_dim:
        raise ParameterError(
            f"joints: got {len(joints)} names {list(joints)}, the checkpoint's state has {spec.state_dim}"
        )
    return joints


def _action_names(values: Mapping[str, Any], joints: tuple[str, ...], spec: PolicySpec) -> tuple[str, ...]:
    given = tuple(values["action_names"])
    names = joints if given == ("",) else given
    if len(names) != spec.action_dim or len(set(names)) != len(names) or "" in names:
        raise ParameterError(
            f"action_names: got {list(names)}, expected {spec.action_dim} different names: "
            "the width of the checkpoint's action"
        )
    return names


def instruction_problem(text: str) -> str | None:
    """Why an instruction cannot be followed, or None."""
    if not text.strip():
        return "it is empty, expected a sentence"
    if len(text) > LONGEST_INSTRUCTION:
        return f"it has {len(text)} characters, expected at most {LONGEST_INSTRUCTION}"
    return None


def _cameras(text: str, spec: PolicySpec) -> tuple[CameraSource, ...]:
    """The sources in the checkpoint's order."""
    topics: dict[str, str] = {}
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        name, _, topic = (piece.strip() for piece in entry.partition("="))
        if name in topics:
            raise ParameterError(f"cameras: '{name}' is named twice in '{text}'")
        topics[name] = topic
    names = list(topics) or list(spec.cameras)
    if not names or set(names) != set(spec.cameras):
        raise ParameterError(f"cameras: got {names}, the checkpoint has {list(spec.cameras)}")
    return tuple(CameraSource(name, topics.get(name) or f"camera/{name}/image_raw") for name in spec.cameras)


def _units(values: Mapping[str, Any], joints: tuple[str, ...], names: tuple[str, ...]) -> JointUnits:
    """Units by name; columns that are no joints keep the policy's own units."""
    units = dict(zip(joints, per_joint(values, "joint_units", joints), strict=True))
    ranged = any(unit.startswith("range") for unit in units.values())
    lower = per_joint(values, "joint_lower", joints) if ranged else [0.0] * len(joints)
    upper = per_joint(values, "joint_upper", joints) if ranged else [0.0] * len(joints)
    ends = {joint: (low, high) for joint, low, high in zip(joints, lower, upper, strict=True)}
    try:
        return JointUnits(
            [units.get(name, "rad") for name in names],
            [ends.get(name, (0.0, 0.0))[0] for name in names],
            [ends.get(name, (0.0, 0.0))[1] for name in names],
        )
    except ValueError as error:
        raise ParameterError(f"joint_units: {error}") from error
