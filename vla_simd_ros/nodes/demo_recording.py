"""What the demo records while it runs: plain data with times in nanoseconds of the ROS clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vla_simd_ros.control.latency_budget import LatencyBudget
from vla_simd_ros.decoding.base import Exit

STAGES = (
    "transport_ms",
    "sync_ms",
    "wait_ms",
    "observation_age_ms",
    "preprocess_ms",
    "query_ms",
    "handover_ms",
    "step_ms",
    "postprocess_ms",
    "total_ms",
    "publish_ms",
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
class Decoding:
    """How a query's action tokens came about: the fields of QueryTiming of these names, the exit in words."""

    passes: int
    tokens: int
    fixed_per_pass: float
    min_tokens_per_second: float
    mean_tokens_per_second: float
    exit: str
    exact: bool


def decoding_of(message: Any) -> Decoding | None:
    """That of a QueryTiming message; None where no tokens were decoded, as in recordings of before there were
    any."""
    if not getattr(message, "passes", 0):
        return None
    exits = {getattr(type(message), each.name): each.value for each in Exit}
    return Decoding(
        passes=int(message.passes),
        tokens=int(message.tokens),
        fixed_per_pass=float(message.fixed_per_pass),
        min_tokens_per_second=float(message.min_tokens_per_second),
        mean_tokens_per_second=float(message.mean_tokens_per_second),
        exit=exits.get(message.exit, "unknown"),
        exact=bool(message.exact),
    )


@dataclass(frozen=True)
class Timing:
    """One query's durations in milliseconds, by field name of QueryTiming, and how it was decoded."""

    stamp: int
    epoch: int
    milliseconds: dict[str, float]
    decoding: Decoding | None = None


def timing_of(message: Any, stamp: int) -> Timing:
    """That of a QueryTiming message captured at ``stamp``; durations that an old recording lacks are 0."""
    durations = {name: float(getattr(message, name, 0.0)) for name in (*STAGES, "episode_ms")}
    return Timing(stamp, int(message.epoch), durations, decoding_of(message))


@dataclass(frozen=True)
class Budget:
    """A LatencyBudget message: a chunk, and where the time from its observation to its first command went."""

    stamp: int
    sequence: int
    budget: LatencyBudget


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
    budgets: list[Budget] = field(default_factory=list)
    executor: list[ExecutorReport] = field(default_factory=list)
    instructions: list[tuple[int, str]] = field(default_factory=list)
    """When each instruction was published, and its text."""
    goals: list[tuple[int, str]] = field(default_factory=list)
    """When each goal of the simulated tasks was reached, and the instruction that it is of."""
    diagnostics: dict[str, dict[str, str]] = field(default_factory=dict)
    """The last values of each diagnostic status, by its name."""

    def seconds(self, time: int) -> float:
        """Seconds from the start of the recording."""
        return (time - self.start) * 1e-9

    def begin(self, time: int) -> None:
        """The recorded time starts: what came before, of another state of affairs, is dropped."""
        self.start = time
        kinds = (self.joint_states, self.commands, self.chunks, self.timings, self.budgets, self.executor)
        for samples in kinds:
            samples.clear()
        self.instructions[:] = [(time, text) for _, text in self.instructions[-1:]]
        self.goals.clear()
