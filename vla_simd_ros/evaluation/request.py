"""What an evaluation is asked for, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.evaluation.episodes import FIRST_SEED, chosen, plan, shuffled
from vla_simd_ros.evaluation.execution import Execution
from vla_simd_ros.evaluation.libero_world import SHUFFLED_SUITE, STATES_PER_TASK, SUITES, suite_limits
from vla_simd_ros.evaluation.world import Episode, EvaluationError, Limits

TASK = "task"
WORLDS = (TASK, *SUITES)
SHUFFLES = ("beside", "only")
EPISODES = 50
TIME_LIMIT_S = 20.0
"""Seconds for an episode of the simulated SO-101; its expert takes about eight."""


@dataclass(frozen=True)
class Request:
    """What to evaluate, and in which episodes.

    ``checkpoints`` are folders; none: the scripted expert. ``arithmetics`` are groups of layers in int8, ""
    for none. ``decoders`` are of policies that spell their actions in tokens. ``episodes``, ``first_seed``
    and ``seconds``: None for the world's own. ``instructions``: none for all of the world. ``shuffle``: one
    of `SHUFFLES`, or "". ``settings`` and ``changes`` are those of the engine, as in
    :meth:`vla_simd_ros.inference.Policy.load`.

    Raises:
        EvaluationError: a value that cannot be, or values that do not go together.
    """

    world: str = TASK
    checkpoints: tuple[str, ...] = ()
    arithmetics: tuple[str, ...] = ("",)
    executions: tuple[Execution, ...] = (Execution(),)
    decoders: tuple[DecoderOptions, ...] = (DEFAULT_OPTIONS,)
    episodes: int | None = None
    first_seed: int | None = None
    instructions: tuple[str, ...] = ()
    shuffle: str = ""
    seconds: float | None = None
    settings: str = "auto"
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.world not in WORLDS:
            raise EvaluationError(f"world '{self.world}' is unknown, expected one of {', '.join(WORLDS)}")
        if not self.checkpoints and self.world != TASK:
            raise EvaluationError(f"the expert knows no other world than '{TASK}', got '{self.world}'")
        if self.episodes is not None and self.episodes < 1:
            raise EvaluationError(f"{self.episodes} episodes, expected at least 1")
        if self.seconds is not None and not 0.0 < self.seconds <= 3600.0:
            raise EvaluationError(f"{self.seconds} s for an episode, expected more than 0, at most 3600")
        if self.shuffle and self.shuffle not in SHUFFLES:
            raise EvaluationError(f"shuffle is '{self.shuffle}', expected one of {', '.join(SHUFFLES)}")
        if self.shuffle and self.world not in (TASK, SHUFFLED_SUITE):
            raise EvaluationError(
                f"the tasks of '{self.world}' lack each other's things, "
                f"expected {SHUFFLED_SUITE} to shuffle in"
            )

    def trials(self, known: Sequence[str]) -> dict[bool, list[Episode]]:
        """The episodes in a world with these instructions: as they are (False) and shuffled (True), as asked.

        Raises:
            EvaluationError: an instruction that the world does not know, or none to shuffle with.
        """
        instructions = chosen(known, self.instructions)
        by_task = self.world != TASK
        count = self.episodes or (STATES_PER_TASK * len(instructions) if by_task else EPISODES)
        seed = self.first_seed if self.first_seed is not None else (0 if by_task else FIRST_SEED)
        episodes = plan(count, instructions, seed, by_instruction=by_task)
        told = {False: episodes} if self.shuffle != "only" else {}
        if self.shuffle:
            told[True] = shuffled(episodes, instructions)
        return told

    def limits(self, period_ns: int) -> Limits:
        """When an episode ends."""
        own = suite_limits(self.world) if self.world != TASK else task_limits(period_ns)
        if self.seconds is None:
            return own
        return Limits(steps=max(1, round(self.seconds * 1e9 / period_ns)), settle=own.settle)


def task_limits(period_ns: int) -> Limits:
    """Of the simulated SO-101. A goal must stay fulfilled for a while: a cube carried past does not count."""
    return Limits(steps=round(TIME_LIMIT_S * 1e9 / period_ns), settle=round(0.5 * 1e9 / period_ns))
