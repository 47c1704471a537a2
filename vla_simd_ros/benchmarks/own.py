"""This engine, and the float64 reference that it and its peers are checked against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup
from vla_simd_ros.benchmarks.op_times import ProfiledPolicy
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.decoding.base import Decoded
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.inference import Policy, Query


class SimdBackend:
    """The engine as its users call it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        executor = SimdExecutor(setup.settings)
        checkpoint = load_checkpoint(setup.checkpoint)
        self._policy = Policy(checkpoint, executor, setup.int8, decoder=setup.decoder)
        self._last: Query | None = None
        if self._policy.spec.uses_instruction:
            self._policy.set_instruction(setup.instruction)
        settings = {name: str(value) for name, value in asdict(setup.settings).items()}
        self.details = {
            **settings,
            "isa": self._policy.isa,
            "threads": str(self._policy.threads),
            "int8": ",".join(self._policy.int8),
            **({} if self._policy.decoder is None else {"decoder": str(self._policy.decoder)}),
            **{f"{dtype}_weight_bytes": str(size) for dtype, size in executor.weight_bytes.items()},
        }

    def query(self, case: Case) -> npt.NDArray[np.float32]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        self._last = self._policy.query(case.observation, noise=case.noise, num_steps=case.num_steps)
        return self._last.actions

    @property
    def spent_ms(self) -> Mapping[str, float]:
        """See :class:`vla_simd_ros.benchmarks.backend.Staged`."""
        if self._last is None:
            return {}
        timing = self._last.timing
        repeats = self._policy.solver is not None or self._policy.action_tokens is not None
        steps = {"step": timing.step_ms} if repeats else {}
        return {"query": timing.query_ms, **steps}

    @property
    def decoded(self) -> Decoded | None:
        """See :class:`vla_simd_ros.benchmarks.backend.Spelling`."""
        return None if self._last is None else self._last.decoded

    def profile(self, case: Case, queries: int) -> list[OpTime]:
        """Shortest time of each operation over ``queries`` queries, on an engine of its own."""
        setup = self._setup
        policy = instruct(load_checkpoint(setup.checkpoint), setup.instruction, self._policy.int8)
        return ProfiledPolicy(policy, setup.settings).profile(case, queries)


def single_precision(setup: Setup) -> SimdBackend:
    """The engine with everything in fp32, to be the peer of itself in int8."""
    return SimdBackend(replace(setup, int8=""))


class ReferenceBackend:
    """The same programs in float64 numpy."""

    def __init__(self, setup: Setup) -> None:
        self._policy = instruct(load_checkpoint(setup.checkpoint), setup.instruction)
        self._executable = ReferenceExecutor().load(self._policy.compiled)
        self.details: dict[str, str] = {}

    def query(self, case: Case) -> npt.NDArray[np.float64]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        return self._policy.run(self._executable, case)["action"]
