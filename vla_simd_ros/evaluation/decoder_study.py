"""Decoders of a policy that spells its actions, and of students distilled from it, side by side.

Success is counted in closed loop. Speed is measured afterwards, on observations of those episodes: every
condition answers the same ones, taking turns, so that whatever else the machine does disturbs all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.decoding.decoders import DEFAULT_SIGMA, DecoderOptions
from vla_simd_ros.evaluation.decoder_speed import Asked, Speed, measure_speeds
from vla_simd_ros.evaluation.episodes import FIRST_SEED
from vla_simd_ros.evaluation.execution import Delay, Execution
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.request import Request
from vla_simd_ros.evaluation.session import Condition, Outcome, Say, evaluate
from vla_simd_ros.evaluation.world import EvaluationError, World
from vla_simd_ros.inference import Policy, Query
from vla_simd_ros.observation import Observation
from vla_simd_ros.sim.demo_policy import image_size

TEACHER, FINE_TUNED, CONSISTENCY = "none", "autoregressive only", "consistency"
"""How a policy was trained beyond the demonstrations."""

AUTOREGRESSIVE, JACOBI, EARLY_EXIT = "autoregressive", "jacobi", "early_exit"


@dataclass(frozen=True)
class Arm:
    """A row of the tables: which policy, and what decodes it."""

    training: str
    decoder: DecoderOptions


@dataclass(frozen=True)
class StudyRequest:
    """What to compare: folders of a teacher and of its students.

    ``initialization`` is what all decoders guess first. ``observations`` are measured ``repeats`` times for
    speed. ``changes`` are those of the engine's settings.

    Raises:
        EvaluationError: no episodes, observations or repeats.
    """

    teacher: Path
    consistency: Path
    fine_tuned: Path | None = None
    sigma: float = DEFAULT_SIGMA
    sigmas: tuple[float, ...] = (0.7, 0.6, 0.5, 0.4)
    initialization: str = "random"
    episodes: int = 100
    first_seed: int = FIRST_SEED
    seconds: float = 12.0
    execution: Execution = field(default_factory=lambda: Execution(threshold=2, delay=Delay(30.0)))
    observations: int = 100
    repeats: int = 5
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("episodes", "observations", "repeats"):
            if getattr(self, name) < 1:
                raise EvaluationError(f"{getattr(self, name)} {name}, expected at least 1")
        for decoder in (arm.decoder for arm in self.arms):
            decoder.make(1)  # refuses what does not exist

    @property
    def folders(self) -> dict[str, Path]:
        """Those that there are, by training."""
        named = {TEACHER: self.teacher, FINE_TUNED: self.fine_tuned, CONSISTENCY: self.consistency}
        return {training: folder for training, folder in named.items() if folder is not None}

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All rows, the one that the others are compared with first."""
        plain = [(TEACHER, AUTOREGRESSIVE), (TEACHER, JACOBI), (FINE_TUNED, JACOBI), (CONSISTENCY, JACOBI)]
        base = DecoderOptions(initialization=self.initialization)
        arms = [Arm(each, replace(base, decoder=name)) for each, name in plain if each in self.folders]
        exits = [replace(base, decoder=EARLY_EXIT, sigma=sigma) for sigma in (self.sigma, *self.sigmas)]
        return tuple(dict.fromkeys([*arms, *(Arm(CONSISTENCY, each) for each in exits)]))


@dataclass(frozen=True)
class Row:
    """What became of an arm."""

    arm: Arm
    outcome: Outcome
    speed: Speed


def run_study(request: StudyRequest, say: Say) -> list[Row]:
    """Run everything.

    Raises:
        EvaluationError, CheckpointError: what is asked for cannot be compared.
    """
    from vla_simd_ros.evaluation.task_world import TaskWorld

    checkpoint = load_checkpoint(request.teacher)
    with ExitStack() as stack:
        policies = {training: stack.enter_context(closing(p)) for training, p in _loaded(request).items()}
        world = stack.enter_context(closing(TaskWorld(*image_size(checkpoint), tuple(checkpoint.cameras))))
        seen = Watched(policies[TEACHER])
        outcomes = []
        for arm in request.arms:
            policy = seen if arm == request.arms[0] else policies[arm.training]
            outcomes.append(_evaluated(request, world, arm, policy, say))
            if outcomes[-1].interrupted:
                raise KeyboardInterrupt
        speeds = measure_speeds(
            [(policies[arm.training], arm.decoder) for arm in request.arms],
            seen.spread(request.observations),
            request.repeats,
            say,
        )
    return [Row(*each) for each in zip(request.arms, outcomes, speeds, strict=True)]


def _loaded(request: StudyRequest) -> dict[str, Policy]:
    policies: dict[str, Policy] = {}
    for training, folder in request.folders.items():
        policy = policies[training] = Policy.load(folder, **request.changes)
        if policy.action_tokens is None:
            raise EvaluationError(f"{folder}: '{policy.name}' spells no actions, expected a policy that does")
        if policy.spec != policies[TEACHER].spec:
            raise EvaluationError(f"{folder}: takes and gives something else than {request.teacher}")
    return policies


def _evaluated(request: StudyRequest, world: World, arm: Arm, policy: Any, say: Say) -> Outcome:
    condition = Condition(arm.training, execution=request.execution, decoder=arm.decoder)
    say(f"{condition}: {request.episodes} episodes")
    asked = Request(
        checkpoints=(str(request.folders[arm.training]),),
        episodes=request.episodes,
        first_seed=request.first_seed,
        seconds=request.seconds,
    )
    episodes = asked.trials(world.instructions)[False]
    pilot = PolicyPilot(policy, request.execution, arm.decoder)
    return evaluate(condition, world, pilot, episodes, asked.limits(world.period_ns), say)


class Watched:
    """A policy in whose place others shall be asked the same: it keeps what it was asked."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._instruction = ""
        self.asked: list[Asked] = []
        """Everything, in order."""
        self.spec = policy.spec

    solver = None

    @property
    def decoder(self) -> DecoderOptions | None:
        return self._policy.decoder

    @property
    def set_decoder(self) -> Callable[..., None]:
        return self._policy.set_decoder

    def set_instruction(self, text: str) -> float:
        self._instruction = text
        return self._policy.set_instruction(text)

    def noise(self, seed: int) -> Any:
        return self._policy.noise(seed)

    def query(self, observation: Observation, *, noise: Any = None) -> Query:
        self.asked.append(Asked(self._instruction, observation))
        return self._policy.query(observation, noise=noise)

    def spread(self, count: int) -> Sequence[Asked]:
        """So many of them, spread evenly."""
        places = np.linspace(0, len(self.asked) - 1, min(count, len(self.asked))).astype(int)
        return [self.asked[place] for place in places]


def described(request: StudyRequest) -> dict[str, Any]:
    """The settings, for the file of results."""
    told = asdict(request)
    return {**told, **{name: str(told[name]) for name in ("teacher", "consistency", "fine_tuned")}}
