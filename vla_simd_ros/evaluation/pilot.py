"""Who commands the robot in an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from vla_simd_ros.evaluation.world import Episode, Vector, World

W_contra = TypeVar("W_contra", bound=World, contravariant=True)


class PilotFailed(Exception):
    """The pilot cannot go on with this episode; the text says why."""


@dataclass(frozen=True)
class Decoding:
    """How the action tokens of an episode were decoded: of all queries together, and the tokens per second of
    the slowest and the fastest query."""

    passes: int
    tokens: int
    seconds: float
    slowest: float
    fastest: float


@dataclass(frozen=True)
class Counts:
    """What a pilot did in an episode. Steps are control steps; ``query_ms`` is the median, NaN for none;
    ``decoding`` is None where there were no tokens to decode."""

    queries: int = 0
    executed_rows: int = 0
    starved_steps: int = 0
    stale_rows: int = 0
    query_ms: float = float("nan")
    decoding: Decoding | None = None


class Pilot(Protocol, Generic[W_contra]):
    """Gives a command for each control step."""

    def begin(self, world: W_contra, episode: Episode) -> None:
        """Start an episode, whose world has begun. Raises PilotFailed."""
        ...

    def command(self, world: W_contra) -> Vector | None:
        """The command of this control step, None for none. Raises PilotFailed."""
        ...

    def counts(self) -> Counts:
        """Of the episode so far."""
        ...
