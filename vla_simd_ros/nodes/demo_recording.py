"""What the demo records while it runs: plain data with times in nanoseconds of the ROS clock."""

from __future__ import annotations

from dataclasses import dataclass, field

STAGES = (
    "observation_age_ms",
    "wait_ms",
    "preprocess_ms",
    "query_ms",
    "step_ms",
    "postprocess_ms",
    "total_ms",
    "observation_to_publish_ms",
)
"""Durations of a QueryTiming message that every query has; its `episode_ms` comes once in an epoch."""


@dataclass(frozen=True)
class Joints:
    """Joint positions, in the order of `Recording.joint_names`, measured or commanded at `time`."""

    time: int
    positions: list[float]


@dataclass(frozen=True)
class Chunk:
    """An action chunk: capture time of its observation, arrival here, and what it carried."""

    stamp: int
    arrival: int
    sequence: int
    epoch: int
    instruction: str
    step_period: float
    horizon: int
    window: int


@dataclass(frozen=True)
class Timing:
    """One query's durations in milliseconds, by field name of QueryTiming."""

    stamp: int
    epoch: int
    milliseconds: dict[str, float]


@dataclass(frozen=True)
class ExecutorReport:
    """An ExecutorState message: its counters and margins, by field name; `state` in words."""

    time: int
    mode: str
    state: str
    values: dict[str, float]
    rejections: dict[str, int]


@dataclass
class Recording:
    """Everything recorded, in order of arrival."""

    joint_names: list[str]
    start: int = 0
    end: int = 0
    joint_states: list[Joints] = field(default_factory=list)
    commands: list[Joints] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    executor: list[ExecutorReport] = field(default_factory=list)
    instructions: list[tuple[int, str]] = field(default_factory=list)
    """When each instruction was published, and its text."""
    diagnostics: dict[str, dict[str, str]] = field(default_factory=dict)
    """The last values of each diagnostic status, by its name."""

    def seconds(self, time: int) -> float:
        """Seconds from the start of the recording."""
        return (time - self.start) * 1e-9

    def begin(self, time: int) -> None:
        """The recorded time starts: what came before, of another state of affairs, is dropped."""
        self.start = time
        for samples in (self.joint_states, self.commands, self.chunks, self.timings, self.executor):
            samples.clear()
        self.instructions[:] = [(time, text) for _, text in self.instructions[-1:]]
