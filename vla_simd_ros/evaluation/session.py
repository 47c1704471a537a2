"""Conditions, each run over the same episodes, with signs of life on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.execution import SYNCHRONOUS, Execution
from vla_simd_ros.evaluation.intervals import Proportion, wilson
from vla_simd_ros.evaluation.pilot import Pilot
from vla_simd_ros.evaluation.rollout import Result, run_episode
from vla_simd_ros.evaluation.world import Episode, Limits, World
from vla_simd_ros.heartbeat import heartbeat

Say = Callable[[str], None]


@dataclass(frozen=True)
class Condition:
    """What is the same in all episodes of a row of the table.

    ``pilot`` names who commands; ``arithmetic`` what its layers are computed in; ``execution`` is None where
    no chunks are executed; ``decoder`` where there are no tokens to decode. ``shuffled``: every instruction
    stands in place of another one.
    """

    pilot: str
    arithmetic: str = ""
    execution: Execution | None = None
    shuffled: bool = False
    decoder: DecoderOptions | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Its settings in words."""
        told = "shuffled" if self.shuffled else "as they are"
        decoder = str(self.decoder or "")
        if self.execution is None:
            return self.pilot, self.arithmetic, decoder, "", "", "", "", told
        horizon = f"{self.execution.horizon} rows" if self.execution.horizon else "all rows"
        return (
            self.pilot,
            self.arithmetic,
            decoder,
            self.execution.mode,
            horizon,
            _paced(self.execution),
            f"delay {self.execution.delay}",
            told,
        )

    def __str__(self) -> str:
        return ", ".join(filter(None, self.parts))


def _paced(execution: Execution) -> str:
    asked = execution.asked_pacing
    if execution.mode == SYNCHRONOUS or asked.kind is QueryPacing.CONTINUOUS:
        return "back to back"
    return f"queried at {asked.threshold}" if asked.kind is QueryPacing.ON_DEMAND else "queried just in time"


def labels(conditions: Sequence[Condition]) -> list[str]:
    """A short name for each condition: what differs among them, or who commands."""
    parts = [condition.parts for condition in conditions]
    differing = [place for place in range(len(parts[0])) if len({each[place] for each in parts}) > 1]
    return [", ".join(each[place] for place in differing or [0] if each[place]) for each in parts]


@dataclass(frozen=True)
class Outcome:
    """A condition, and what became of its episodes; ``period_s`` is a control step in seconds.

    ``interrupted``: somebody ended it before its last episode.
    """

    condition: Condition
    results: tuple[Result, ...]
    period_s: float
    interrupted: bool = False

    @property
    def success(self) -> Proportion:
        """Of all episodes."""
        return wilson(sum(result.success for result in self.results), len(self.results))

    def of(self, instruction: str) -> Proportion | None:
        """Of the episodes with an instruction; None without any."""
        found = [result.success for result in self.results if result.episode.instruction == instruction]
        return wilson(sum(found), len(found)) if found else None

    @property
    def original(self) -> Proportion | None:
        """Goals reached that belonged to the world, where the policy was told something else."""
        found = [result.original_reached for result in self.results if result.episode.shuffled]
        return wilson(sum(found), len(found)) if found else None

    @property
    def elsewhere(self) -> Proportion:
        """Episodes that reached the goal of another instruction and not their own."""
        found = [bool(result.reached) and not result.success for result in self.results]
        return wilson(sum(found), len(found))


def evaluate(
    condition: Condition,
    world: World,
    pilot: Pilot[Any],
    episodes: Sequence[Episode],
    limits: Limits,
    say: Say,
) -> Outcome:
    """Run the episodes one after the other; ``say`` is told every few seconds how it goes.

    KeyboardInterrupt ends it with the episodes that there are, and is raised only where there is none.
    """
    results: list[Result] = []
    interrupted = False
    steps = [0]

    def status(seconds: float) -> None:
        won = sum(result.success for result in results)
        say(
            f"  {seconds:.0f} s: episode {len(results) + 1} of {len(episodes)}, control step {steps[0]}; "
            f"{won} of {len(results)} succeeded"
        )

    def watch(step: int) -> None:
        steps[0] = step

    try:
        with heartbeat(status):
            for episode in episodes:
                watch(0)
                results.append(run_episode(world, pilot, episode, limits, watch))
    except KeyboardInterrupt:
        if not results:
            raise
        interrupted = True
    outcome = Outcome(condition, tuple(results), world.period_ns * 1e-9, interrupted)
    say(f"  {outcome.success} of the episodes succeeded")
    return outcome
