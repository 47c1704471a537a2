"""One episode, from its start to success or to the end of its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vla_simd_ros.evaluation.goals import Goals
from vla_simd_ros.evaluation.pilot import Counts, Pilot, PilotFailed
from vla_simd_ros.evaluation.world import Episode, Limits, Vector, World


@dataclass(frozen=True)
class Result:
    """What became of an episode.

    ``steps`` are control steps to success, or all of them. ``reached`` are the instructions whose goals were
    fulfilled as long as a success takes, the episode's own or others. ``failure`` says in words why it is no
    success: empty after one. ``state`` is the last one of a failure. ``commands`` were given one per step.
    """

    episode: Episode
    success: bool
    steps: int
    reached: frozenset[str]
    failure: str = ""
    counts: Counts = field(default_factory=Counts)
    state: Mapping[str, list[float]] = field(default_factory=dict)
    commands: tuple[Vector | None, ...] = ()

    @property
    def original_reached(self) -> bool:
        """Whether the goal that belonged to the world was reached."""
        return self.episode.original in self.reached


def run_episode(
    world: World,
    pilot: Pilot[Any],
    episode: Episode,
    limits: Limits,
    watch: Callable[[int], None] = lambda step: None,
) -> Result:
    """Run an episode; ``watch`` is called with the number of each control step before it."""
    world.begin(episode)
    goals = Goals(limits.settle - 1)
    commands: list[Vector | None] = []
    failure = ""
    try:
        pilot.begin(world, episode)
        while len(commands) < limits.steps and episode.instruction not in goals.reached:
            watch(len(commands))
            commands.append(pilot.command(world))
            world.act(commands[-1])
            goals.see(world.achieved(), len(commands))
    except PilotFailed as error:
        failure = str(error)
    success = episode.instruction in goals.reached
    if not success and not failure:
        failure = goals.missed(limits.steps)
    return Result(
        episode=episode,
        success=success,
        steps=len(commands),
        reached=frozenset(goals.reached),
        failure=failure,
        counts=pilot.counts(),
        state={} if success else world.state(),
        commands=tuple(commands),
    )
