"""What one query asks of a policy's programs: their inputs and the solver steps that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vla_simd_ros.decoding.action_decoder import ActionDecoder, TokenPlan
from vla_simd_ros.executors.base import InputError
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.observation import Observation, observation_inputs
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.sampling import Plan, Prefix, Sampler, no_solver


@dataclass(frozen=True, eq=False)
class Request:
    """The inputs of the query program by name, and what follows it: solver steps, or tokens that are decoded;
    neither for a policy of one pass."""

    values: Mapping[str, Array]
    plan: Plan | None = None
    tokens: TokenPlan | None = None

    @property
    def goes_on(self) -> bool:
        """Whether anything follows the query program."""
        return self.plan is not None or self.tokens is not None


def make_request(
    spec: PolicySpec,
    sampler: Sampler | None,
    observation: Observation,
    *,
    noise: Array | None = None,
    num_steps: int | None = None,
    prefix: Prefix | None = None,
    decoder: ActionDecoder | None = None,
    instruction: int | None = None,
    text: str = "",
    deadline: float = math.inf,
) -> Request:
    """Check an observation and what else a query takes; see :meth:`vla_simd_ros.inference.Policy.query`. The
    instruction ``text`` has ``instruction`` tokens.

    Raises InputError for what does not fit.
    """
    values = observation_inputs(spec, observation)
    if decoder is None and deadline != math.inf:
        raise InputError(f"the policy '{spec.type}' decodes no tokens, it takes no deadline")
    if sampler is not None:
        values |= sampler.prefix_inputs(prefix)
        return Request(values, sampler.plan(noise, num_steps, prefix))
    for name, value in (("noise", noise), ("num_steps", num_steps), ("prefix", prefix)):
        if value is not None:
            raise no_solver(spec.type, name)
    if decoder is None:
        return Request(values)
    given, count = decoder.prompted(values, text, instruction)
    return Request(given, tokens=decoder.plan(values, count, deadline))
