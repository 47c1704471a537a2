"""What an evaluation needs of a simulated world, whichever simulator it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import JointLimits
from vla_simd_ros.observation import Observation

Vector = npt.NDArray[np.float64]
Picture = npt.NDArray[np.uint8]


class EvaluationError(ValueError):
    """An evaluation that cannot be made as asked; the message names what, its value and the expectation."""


@dataclass(frozen=True)
class Episode:
    """One trial: where the world starts, and what is to be done in it.

    ``seed`` and ``original`` decide how the world starts; ``original`` is the instruction that belongs to
    that start. ``instruction`` is what the policy is told, and whose goal counts as success.
    """

    number: int
    seed: int
    original: str
    instruction: str

    @property
    def shuffled(self) -> bool:
        """Whether the policy is told something else than what belongs to the world."""
        return self.instruction != self.original


@dataclass(frozen=True)
class Actions:
    """What the rows of a policy's chunks are in a world: names and limits of the columns, and their kind."""

    names: tuple[str, ...]
    kind: ActionKind
    limits: JointLimits


@dataclass(frozen=True)
class Limits:
    """When an episode ends: after ``steps`` control steps, or when its goal has been fulfilled for ``settle``
    of them without a break."""

    steps: int
    settle: int = 1


class World(Protocol):
    """A simulated robot among things, moved on one control step at a time."""

    @property
    def instructions(self) -> Sequence[str]:
        """What can be asked for here."""
        ...

    @property
    def period_ns(self) -> int:
        """The control period."""
        ...

    @property
    def actions(self) -> Actions:
        """What it is commanded with."""
        ...

    def begin(self, episode: Episode) -> None:
        """Put everything where the episode starts: the same episode, the same start."""
        ...

    def observe(self) -> Observation:
        """What the policy sees and feels now."""
        ...

    @property
    def positions(self) -> Vector:
        """Where the commanded joints are now; of actions that are no positions, anything."""
        ...

    def act(self, command: Vector | None) -> None:
        """Move on by one control step under a command, or under none: whatever holds the robot still."""
        ...

    def achieved(self) -> frozenset[str]:
        """The instructions whose goals are fulfilled now; at least of the episode's own two, known ones."""
        ...

    def state(self) -> Mapping[str, list[float]]:
        """Where the robot and the things are, to be told of a failure."""
        ...

    def picture(self) -> Picture:
        """The view for onlookers, RGB."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...
