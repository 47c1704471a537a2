"""One episode, from its start to success or to the end of its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    goals = _Goals(limits.settle)
    commands: list[Vector | None] = []
    failure = ""
    try:
        pilot.begin(world, episode)
        while len(commands) < limits.steps and episode.instruction not in goals.reached:
            watch(len(commands))
            commands.append(pilot.command(world))
            world.act(commands[-1])
            goals.see(world.achieved())
    except PilotFailed as error:
        failure = str(error)
    success = episode.instruction in goals.reached
    if not success and not failure:
        others = ", ".join(f"'{text}'" for text in sorted(goals.reached))
        failure = f"not within {limits.steps} steps" + (f"; reached {others}" if others else "")
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


class _Goals:
    """Which goals have been fulfilled for long enough."""

    def __init__(self, settle: int) -> None:
        self._settle = settle
        self._lasting: dict[str, int] = {}
        self.reached: set[str] = set()

    def see(self, achieved: frozenset[str]) -> None:
        """Take the goals fulfilled after a control step."""
        self._lasting = {goal: self._lasting.get(goal, 0) + 1 for goal in achieved}
        self.reached.update(goal for goal, steps in self._lasting.items() if steps >= self._settle)
