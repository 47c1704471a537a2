"""A policy cut in two: the prefix on one executor, the suffix and all solver steps on another."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.executors.base import Executor
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.hybrid.split_executor import SplitExecutor
from vla_simd_ros.observation import Observation
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.request import Request, make_request
from vla_simd_ros.sampling import Prefix, Sampler

__all__ = ["Request", "SplitPolicy"]


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
        self._after = after
        self._executable = SplitExecutor(prefix, suffix, [after]).load(compiled)
        self.cut = self._executable.partition(after)
        """Both sides and what crosses between them."""
        self._sampler = sampler

    def instruct(self, token_ids: Array | None) -> None:
        """Run what depends on the instruction, int32 [tokens], on either side; None where none is taken."""
        self._executable.run(Lifetime.EPISODE, {} if token_ids is None else {"token_ids": token_ids})

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
        return make_request(
            self.spec, self._sampler, observation, noise=noise, num_steps=num_steps, prefix=prefix
        )

    def prefix(self, request: Request) -> Request:
        """The first side's part: ``request`` with what crosses the cut."""
        return Request(self._executable.prefix(self._after, request.values), request.plan)

    def suffix(self, request: Request) -> Array:
        """The second side's part, from what :meth:`prefix` returned: float32 [chunk_size, action_dim] in
        robot units."""
        values = self._executable.suffix(self._after, request.values)
        if self._sampler is not None and request.plan is not None:
            return np.asarray(
                self._sampler.run(self._executable.steps(self._after), request.plan), np.float32
            )
        return np.asarray(values["action"], np.float32)
