"""What one query asks of a policy's programs: their inputs and the solver steps that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vla_simd_ros.graph.ir import Array
from vla_simd_ros.observation import Observation, observation_inputs
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.sampling import Plan, Prefix, Sampler, one_pass


@dataclass(frozen=True, eq=False)
class Request:
    """The inputs of the query program by name, and the solver steps; None for a policy of one pass."""

    values: Mapping[str, Array]
    plan: Plan | None


def make_request(
    spec: PolicySpec,
    sampler: Sampler | None,
    observation: Observation,
    *,
    noise: Array | None = None,
    num_steps: int | None = None,
    prefix: Prefix | None = None,
) -> Request:
    """Check an observation and what else a query takes; see :meth:`vla_simd_ros.inference.Policy.query`.

    Raises InputError for what does not fit.
    """
    values = observation_inputs(spec, observation)
    if sampler is not None:
        values |= sampler.prefix_inputs(prefix)
        return Request(values, sampler.plan(noise, num_steps, prefix))
    for name, value in (("noise", noise), ("num_steps", num_steps), ("prefix", prefix)):
        if value is not None:
            raise one_pass(spec.type, name)
    return Request(values, None)
