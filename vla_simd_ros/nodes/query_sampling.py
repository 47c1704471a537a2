"""What the queries of a policy that iterates are given besides observations: steps, noise, and how hard the
rows of the previous chunk hold the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.inference import InputError, Prefix
from vla_simd_ros.nodes.param import Param, ParameterError
from vla_simd_ros.policies.base import GuidedSolver
from vla_simd_ros.sampling import takes_fewer_steps

MOST_STEPS = 1000
_SEEDS = 2**63

SAMPLING_PARAMETERS = [
    Param(
        "num_steps",
        0,
        "Solver steps of a query, for a policy that iterates; 0: as many as the checkpoint says. Can be "
        "changed at any time.",
        minimum=0,
        maximum=MOST_STEPS,
        live=True,
    ),
    Param(
        "seed",
        -1,
        "Seed of the noise of a policy that iterates: the same one gives the same noise query by query; -1: "
        "other noise each time the node is configured.",
        minimum=-1,
    ),
    Param(
        "execution_horizon",
        -1,
        "Real-time chunking, for a policy that continues chunks: so many rows of the chunk in execution draw "
        "the next one to them, at least those that will have been executed before it arrives; 0: none; -1: "
        "as many as the checkpoint's rtc_config says, 10 without one.",
        minimum=-1,
    ),
    Param(
        "max_guidance_weight",
        0.0,
        "Real-time chunking: how hard a solver step may be drawn to these rows; 0: as hard as the "
        "checkpoint's rtc_config says, 10 without one.",
        minimum=0.0,
        maximum=1e6,
    ),
    Param(
        "prefix_schedule",
        "",
        "Real-time chunking: how the weights of these rows fall after those that will have been executed; "
        "empty: as the checkpoint's rtc_config says, without one as the policy's solver has it by default.",
    ),
]


@dataclass(frozen=True)
class Sampled:
    """Keyword arguments of a query, and what they can be made of again: 0 steps for a policy of one pass."""

    arguments: Mapping[str, Any]
    num_steps: int = 0
    noise_seed: int = 0


class QuerySampling:
    """Steps and noise of one policy's queries, and its prefixes.

    Args:
        policy: the loaded policy.
        values: the node's parameters.

    Raises:
        ParameterError: a parameter that this policy cannot be given.
    """

    def __init__(self, policy: Any, values: Mapping[str, Any]) -> None:
        self._policy = policy
        self._solver = policy.solver
        self._horizon = self._asked_horizon(values["execution_horizon"])
        self._max_weight: float | None = values["max_guidance_weight"] or None
        self._schedule: str | None = values["prefix_schedule"] or None
        self._check_schedule()
        seed = values["seed"]
        if seed >= 0 and self._solver is None:
            raise ParameterError(f"seed: got {seed}, but the policy '{policy.spec.type}' draws no noise")
        self._generator = np.random.default_rng(None if seed < 0 else seed)
        self.set_num_steps(values["num_steps"])

    @property
    def takes_fewer_steps(self) -> bool:
        """Whether fewer solver steps could be asked for."""
        return takes_fewer_steps(self._solver)

    @property
    def continues(self) -> bool:
        """Whether queries are given rows of the previous chunk."""
        return bool(self._policy.supports_prefix) and self._horizon > 0

    def set_num_steps(self, num_steps: int) -> None:
        """Let later queries take so many steps; 0: as many as the checkpoint says. From any thread.

        Raises:
            ParameterError: the policy cannot take so many.
        """
        try:
            if num_steps:
                self._policy.noise(0, num_steps)
        except InputError as error:
            raise ParameterError(f"num_steps: got {num_steps}: {error}") from None
        self._num_steps: int = num_steps

    def draw(self) -> Sampled:
        """Steps and noise of the next query."""
        if self._solver is None:
            return Sampled({})
        num_steps = self._num_steps or self._solver.default_steps
        seed = int(self._generator.integers(_SEEDS))
        noise = self._policy.noise(seed, num_steps)
        return Sampled({"noise": noise, "num_steps": num_steps}, num_steps, seed)

    def prefix(self, rows: np.ndarray, frozen: int) -> Prefix:
        """The rows of the previous chunk that a query goes on from, in the policy's units; the first
        ``frozen`` will have been executed before its chunk arrives."""
        return Prefix(
            rows, frozen, max(self._horizon, frozen), self._schedule, max_guidance_weight=self._max_weight
        )

    def _asked_horizon(self, horizon: int) -> int:
        """Rows that draw the next chunk: what the parameter says, or else the checkpoint; 0: none."""
        if horizon >= 0 or not isinstance(self._solver, GuidedSolver):
            return max(horizon, 0)
        guidance = self._solver.guidance
        return guidance.horizon if guidance.enabled else 0

    def _check_schedule(self) -> None:
        if self._schedule is None:
            return
        if not isinstance(self._solver, GuidedSolver):
            kind = self._policy.spec.type
            raise ParameterError(
                f"prefix_schedule: got '{self._schedule}', but the policy '{kind}' continues no chunks"
            )
        if self._schedule not in self._solver.schedules:
            known = ", ".join(self._solver.schedules)
            raise ParameterError(f"prefix_schedule: got '{self._schedule}', expected one of {known}")
