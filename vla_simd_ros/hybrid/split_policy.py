"""A policy cut in two: the prefix on one executor, the suffix and all solver steps on another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.executors.base import Executable, Executor
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.partition import partition
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.observation import Observation, observation_inputs
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.sampling import Plan, Prefix, Sampler


@dataclass(frozen=True, eq=False)
class Request:
    """An observation laid out for both sides, and the solver steps that follow."""

    values: Mapping[str, Array]
    plan: Plan | None


class SplitPolicy:
    """The policy of ``compiled`` with the blocks up to ``after`` on ``prefix`` and the others on ``suffix``.

    :meth:`prefix` and :meth:`suffix` may run at the same time, on different requests, each in one thread at
    a time; :meth:`instruct` only while neither does.
    """

    def __init__(
        self,
        spec: PolicySpec,
        compiled: CompiledPolicy,
        after: str,
        prefix: Executor,
        suffix: Executor,
        sampler: Sampler | None,
    ) -> None:
        self.spec = spec
        self.cut = partition(compiled, after)
        """Both sides and what crosses between them."""
        self._prefix = _Side(self.cut.prefix, prefix)
        self._suffix = _Side(self.cut.suffix, suffix)
        self._sampler = sampler

    def instruct(self, token_ids: Array | None) -> None:
        """Run what depends on the instruction, int32 [tokens], on either side; None where none is taken."""
        values = {} if token_ids is None else {"token_ids": token_ids}
        for side in (self._prefix, self._suffix):
            side.run(Lifetime.EPISODE, values)

    def request(
        self,
        observation: Observation,
        *,
        noise: Array | None = None,
        num_steps: int | None = None,
        prefix: Prefix | None = None,
    ) -> Request:
        """Check an observation and what else :meth:`vla_simd_ros.inference.Policy.query` takes.

        Raises InputError for what does not fit.
        """
        values = observation_inputs(self.spec, observation)
        if self._sampler is None:
            return Request(values, None)
        values |= self._sampler.prefix_inputs(prefix)
        return Request(values, self._sampler.plan(noise, num_steps, prefix))

    def prefix(self, request: Request) -> Request:
        """The first side's part: ``request`` with what crosses the cut."""
        return Request({**request.values, **self._prefix.run(Lifetime.QUERY, request.values)}, request.plan)

    def suffix(self, request: Request) -> Array:
        """The second side's part, from what :meth:`prefix` returned: float32 [chunk_size, action_dim] in
        robot units."""
        outputs = self._suffix.run(Lifetime.QUERY, request.values)
        if self._sampler is not None and request.plan is not None:
            return np.asarray(self._sampler.run(self._suffix.executable, request.plan), np.float32)
        return np.asarray({**request.values, **outputs}["action"], np.float32)


class _Side:
    """One side's programs, which take from the values what they read."""

    def __init__(self, compiled: CompiledPolicy, executor: Executor) -> None:
        self._compiled = compiled
        self.executable: Executable = executor.load(compiled)

    def run(self, lifetime: Lifetime, values: Mapping[str, Array]) -> dict[str, Array]:
        inputs = {name: values[name] for name in self._compiled.programs[lifetime].inputs}
        return self.executable.run(lifetime, inputs)
