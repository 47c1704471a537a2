"""Worlds and pilots for what an evaluation is asked for, one pair after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.execution import recommended_pacing
from vla_simd_ros.evaluation.libero_world import LiberoWorld
from vla_simd_ros.evaluation.pilot import Pilot
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.request import TASK, Request
from vla_simd_ros.evaluation.session import Condition, Outcome, Say, evaluate
from vla_simd_ros.evaluation.world import World
from vla_simd_ros.graph.int8 import FP32, INT8
from vla_simd_ros.heartbeat import heartbeat
from vla_simd_ros.inference import Policy
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.sim.demo_policy import image_size
from vla_simd_ros.tuning.tuned import resolve

EXPERT = "expert"
_EXPERT_SEES = (64, 48)  # nothing: it knows where things are
_STAGE = (320, 240)


@dataclass(frozen=True)
class Seat:
    """A world, and who commands there under which conditions."""

    world: World
    pilots: list[tuple[Condition, Pilot[Any]]]


def run(request: Request, say: Say, seen: Callable[[World, Outcome], None]) -> list[Outcome]:
    """Run all conditions, or those until one is interrupted.

    ``seen`` is called with each outcome while its world is still there.

    Raises:
        EvaluationError, CheckpointError, CheckpointMismatch: what is asked for cannot be evaluated.
    """
    outcomes = []
    for enter in _seats(request, say):
        with enter as seat:
            trials = request.trials(seat.world.instructions)
            limits = request.limits(seat.world.period_ns)
            for condition, pilot in seat.pilots:
                for is_shuffled, episodes in trials.items():
                    told = replace(condition, shuffled=is_shuffled)
                    say(f"{told}: {len(episodes)} episodes")
                    outcomes.append(evaluate(told, seat.world, pilot, episodes, limits, say))
                    if outcomes[-1].interrupted:
                        return outcomes
                    seen(seat.world, outcomes[-1])
    return outcomes


def _seats(request: Request, say: Say) -> Iterator[AbstractContextManager[Seat]]:
    if not request.checkpoints:
        yield _expert()
    for folder in request.checkpoints:
        for groups in request.arithmetics:
            yield _policy(request, folder, groups, say)


@contextmanager
def _expert() -> Iterator[Seat]:
    from vla_simd_ros.evaluation.task_world import ExpertPilot, TaskWorld

    with closing(TaskWorld(*_EXPERT_SEES)) as world:
        yield Seat(world, [(Condition(EXPERT), ExpertPilot())])


@contextmanager
def _policy(request: Request, folder: str, groups: str, say: Say) -> Iterator[Seat]:
    checkpoint = load_checkpoint(folder)
    recommended = recommended_pacing(checkpoint.folder)
    executions = tuple(execution.paced(recommended) for execution in request.executions)
    chosen = resolve(request.settings, checkpoint, request.changes, groups)
    with closing(_world(request.world, checkpoint)) as world:
        # What does not fit is said before anything is loaded.
        request.trials(world.instructions)
        with heartbeat(lambda seconds: say(f"  loading {folder} ({seconds:.0f} s)")):
            policy = Policy.load(folder, settings=chosen.settings, int8=chosen.int8)
            policy.warm_up()
        with closing(policy):
            arithmetic = f"{INT8} ({', '.join(policy.int8)})" if policy.int8 else FP32
            say(f"{folder}: {policy.name}, {arithmetic}, {policy.isa}, {policy.threads} threads")
            yield Seat(world, _pilots(replace(request, executions=executions), Path(folder).name, policy))


def _pilots(request: Request, name: str, policy: Policy) -> list[tuple[Condition, Pilot[Any]]]:
    """One for each way of decoding and executing what the policy predicts."""
    arithmetic = INT8 if policy.int8 else FP32
    for decoder in request.decoders:
        policy.set_decoder(**asdict(decoder))  # refused by a policy that has no use for it
    decodes = policy.action_tokens is not None
    return [
        (
            Condition(name, arithmetic, execution, decoder=decoder if decodes else None),
            PolicyPilot(policy, execution, decoder if decodes else None),
        )
        for decoder in request.decoders
        for execution in request.executions
    ]


def _world(name: str, checkpoint: Checkpoint) -> World:
    if name != TASK:
        return LiberoWorld(name, define_policy(checkpoint).spec)
    from vla_simd_ros.evaluation.task_world import TaskWorld

    width, height = image_size(checkpoint)
    return TaskWorld(width, height, tuple(checkpoint.cameras))


def stage(world: World) -> World:
    """A world to run episodes again in with larger pictures; the same one, where its own are large enough."""
    if isinstance(world, LiberoWorld):
        return world
    from vla_simd_ros.evaluation.task_world import TaskWorld

    return TaskWorld(*_STAGE)
