"""What a recording tells about a run, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_simd_ros.control.latency_budget import STAGES as BUDGET_STAGES
from vla_simd_ros.control.latency_budget import LatencyBudget
from vla_simd_ros.nodes.demo_recording import (
    Budget,
    Chunk,
    ExecutorReport,
    Joints,
    Recording,
    timing_of,
)
from vla_simd_ros.recording.bag import Bag, BagError, message_type

CHUNK, TIMING = message_type("ActionChunk"), message_type("QueryTiming")
STEP = message_type("ControlStep")
STATE, BUDGET = message_type("ExecutorState"), message_type("LatencyBudget")
IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
JOINTS = "sensor_msgs/msg/JointState"
TRAJECTORY, ARRAY = "trajectory_msgs/msg/JointTrajectory", "std_msgs/msg/Float64MultiArray"
TWIST = "geometry_msgs/msg/TwistStamped"
STRING, EPOCH = "std_msgs/msg/String", "std_msgs/msg/UInt64"

_TEXTS = ("header", "mode", "aggregation", "reason", "rejection_reasons", "rejection_counts")


@dataclass
class Run:
    """A run: what the demo records too, and the frames of the cameras (capture time, receipt) by topic."""

    recording: Recording
    frames: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def nanoseconds(stamp: Any) -> int:
    """A message stamp as integer nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def state_name(message: Any) -> str:
    """The name of the constant that an ExecutorState's state is."""
    names: dict[Any, str] = {value: name for name, value in vars(type(message)).items() if name.isupper()}
    return names.get(message.state, "UNKNOWN")


def read_run(path: Path, namespace: str = "") -> Run:
    """Read a recording.

    Raises:
        BagError: it is none, is damaged, or holds neither chunks nor executor states.
    """
    with Bag(path, namespace) as bag:
        handlers = _handlers(bag)
        reader = _Reader(_joint_names(bag))
        for recorded in bag.messages(handlers):
            handlers[recorded.topic](reader, recorded.message, recorded.time_ns, recorded.topic)
    return reader.finish()


def topics(bag: Bag) -> dict[str, str]:
    """Topic by role, of those roles that the recording has."""
    roles = {
        "chunk": (CHUNK, ""),
        "timing": (TIMING, ""),
        "state": (STATE, ""),
        "step": (STEP, ""),
        "budget": (BUDGET, ""),
        "joint_states": (JOINTS, "joint_states"),
        "instruction": (STRING, "instruction"),
        "epoch": (EPOCH, "epoch"),
    }
    found = {role: bag.topic(*wanted) for role, wanted in roles.items()}
    for kind, ending in ((TRAJECTORY, ""), (ARRAY, "commands"), (JOINTS, "joint_command"), (TWIST, "twist")):
        found.setdefault("command", None)
        found["command"] = found["command"] or bag.topic(kind, ending)
    return {role: topic for role, topic in found.items() if topic is not None}


_Handler = Callable[["_Reader", Any, int, str], None]


def _handlers(bag: Bag) -> dict[str, _Handler]:
    present = topics(bag)
    by_role: Mapping[str, _Handler] = {
        "chunk": _Reader.chunk if "timing" in present else _Reader.chunk_with_timing,
        "timing": _Reader.timing,
        "state": _Reader.state,
        "budget": _Reader.budget,
        "joint_states": _Reader.joint_state,
        "instruction": _Reader.instruction,
        "command": _Reader.command,
    }
    if not {"chunk", "state"} & present.keys():
        known = ", ".join(sorted(bag.topics)) or "no message at all"
        raise BagError(
            f"{bag.path}: holds neither {CHUNK} nor {STATE}; record action_chunk, query_timing, "
            f"executor_state, latency_budget, joint_states and the commands. It has {known}"
        )
    handlers = {topic: by_role[role] for role, topic in present.items() if role in by_role}
    for topic, kind in bag.topics.items():
        if kind in IMAGES:
            handlers[topic] = _Reader.frame
    return handlers


def _joint_names(bag: Bag) -> list[str]:
    """The columns of the chunks, else the joints of the joint states."""
    present = topics(bag)
    for role, field_name in (("chunk", "action_names"), ("joint_states", "name")):
        if role in present:
            first = next(bag.messages([present[role]]), None)
            if first is not None:
                return list(getattr(first.message, field_name))
    return []


class _Reader:
    """Fills a run with messages, in the order of their receipt."""

    def __init__(self, joint_names: list[str]) -> None:
        self._run = Run(Recording(joint_names))
        self._recording = self._run.recording
        self._times: list[int] = []

    def finish(self) -> Run:
        """The run, from its first to its last message."""
        if self._times:
            self._recording.start, self._recording.end = min(self._times), max(self._times)
        return self._run

    def frame(self, message: Any, time_ns: int, topic: str) -> None:
        self._run.frames.setdefault(topic, []).append((nanoseconds(message.header.stamp), time_ns))

    def chunk(self, message: Any, time_ns: int, topic: str) -> None:
        self._times.append(time_ns)
        self._recording.chunks.append(
            Chunk(
                stamp=nanoseconds(message.header.stamp),
                arrival=time_ns,
                sequence=int(message.sequence),
                epoch=int(message.epoch),
                instruction=message.instruction,
                step_period=float(message.step_period),
                horizon=int(message.horizon),
                window=int(message.window),
            )
        )

    def chunk_with_timing(self, message: Any, time_ns: int, topic: str) -> None:
        """Where query_timing was not recorded: a chunk carries that of its query."""
        self.timing(message.timing, time_ns, topic)
        self.chunk(message, time_ns, topic)

    def timing(self, message: Any, time_ns: int, topic: str) -> None:
        self._times.append(time_ns)
        self._recording.timings.append(timing_of(message, nanoseconds(message.header.stamp)))

    def state(self, message: Any, time_ns: int, topic: str) -> None:
        self._times.append(time_ns)
        names = [name for name in vars(message) if name not in _TEXTS and not name.startswith("_")]
        self._recording.executor.append(
            ExecutorReport(
                time=nanoseconds(message.header.stamp),
                mode=message.mode,
                state=state_name(message),
                values={name: float(getattr(message, name)) for name in names},
                rejections={
                    reason: int(count)
                    for reason, count in zip(
                        message.rejection_reasons, message.rejection_counts, strict=False
                    )
                },
            )
        )

    def budget(self, message: Any, time_ns: int, topic: str) -> None:
        stages = {name: float(getattr(message, name, 0.0)) for name in BUDGET_STAGES}
        budget = LatencyBudget(stages, float(message.total_ms))
        self._recording.budgets.append(
            Budget(nanoseconds(message.header.stamp), int(message.sequence), budget)
        )

    def joint_state(self, message: Any, time_ns: int, topic: str) -> None:
        time = nanoseconds(message.header.stamp) or time_ns
        self._add(self._recording.joint_states, time, message.name, message.position)

    def command(self, message: Any, time_ns: int, topic: str) -> None:
        self._times.append(time_ns)
        names, positions = command_values(message, self._recording.joint_names)
        self._add(self._recording.commands, time_ns, names, positions)

    def instruction(self, message: Any, time_ns: int, topic: str) -> None:
        self._recording.instructions.append((time_ns, message.data))

    def _add(
        self, samples: list[Joints], time: int, names: Sequence[str], positions: Sequence[float]
    ) -> None:
        by_name = dict(zip(names, map(float, positions), strict=False))
        nowhere = float("nan")
        samples.append(Joints(time, [by_name.get(name, nowhere) for name in self._recording.joint_names]))


def command_values(message: Any, joint_names: Sequence[str]) -> tuple[Sequence[str], Sequence[float]]:
    """Names and values of a command, of whichever kind."""
    if hasattr(message, "points"):
        return message.joint_names, message.points[-1].positions if message.points else ()
    if hasattr(message, "layout"):
        return joint_names, message.data
    if hasattr(message, "twist"):
        parts = {"linear": message.twist.linear, "angular": message.twist.angular}
        values = {f"{part}_{axis}": getattr(parts[part], axis) for part in parts for axis in "xyz"}
        return list(values), list(values.values())
    return message.name, message.position
