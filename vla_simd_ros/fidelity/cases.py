"""What both sides of a comparison are given: raw observations and, for a policy that iterates, noise."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.observations import random_observations
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.inference import Observation, Prefix
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.sampling import make_sampler, no_solver


@dataclass(frozen=True, eq=False)
class Case:
    """One query. For a policy that iterates, with ``num_steps`` and ``noise``: [rows, width] in the network's
    units, or [1 + num_steps, rows, width] where every step takes some. ``prefix`` are rows of a previous
    chunk for a policy that takes them. ``tokens`` are what a policy that spells its actions is made to
    read (None: what it decodes)."""

    observation: Observation
    noise: Array | None = None
    num_steps: int | None = None
    prefix: Prefix | None = None
    tokens: tuple[int, ...] | None = None


def random_cases(
    checkpoint: Checkpoint, count: int, seed: int, *, noise_seed: int = 0, num_steps: int | None = None
) -> list[Case]:
    """``count`` random observations; for a policy that iterates with noise for ``num_steps`` steps, or the
    solver's default. The first of more are the same. Raises InputError for what the policy does not take."""
    definition = define_policy(checkpoint)
    observations = random_observations(checkpoint, count, seed)
    sampler = make_sampler(definition, None if definition.solver is None else noise_seed)
    if sampler is None:
        if num_steps is not None:
            raise no_solver(definition.spec.type, "num_steps")
        return [Case(observation) for observation in observations]
    plans = [sampler.plan(num_steps=num_steps) for _ in observations]
    return [Case(o, p.noise, len(p.steps)) for o, p in zip(observations, plans, strict=True)]
