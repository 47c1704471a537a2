"""This engine, and the float64 reference that it and its peers are checked against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vla_simd_ros.benchmarks.backend import Setup
from vla_simd_ros.benchmarks.op_times import ProfiledPolicy
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.fidelity.programs import compile_policy, run_programs
from vla_simd_ros.inference import Observation, Policy
from vla_simd_ros.policies.registry import define_policy

if TYPE_CHECKING:
    from vla_simd_ros.fidelity.observations import RawObservation


class SimdBackend:
    """The engine as its users call it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._policy = Policy.load(setup.checkpoint, threads=setup.threads, isa=setup.isa)
        if self._policy.spec.uses_instruction:
            self._policy.set_instruction(setup.instruction)
        self.details = {"isa": self._policy.isa, "threads": str(self._policy.threads)}

    def query(self, observation: RawObservation) -> npt.NDArray[np.float32]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        asked = Observation(observation.images, observation.state, observation.env_state)
        return self._policy.query(asked).actions

    def profile(self, observation: RawObservation, queries: int) -> list[OpTime]:
        """Shortest time of each operation over ``queries`` queries, on an engine of its own."""
        return ProfiledPolicy(self._setup).profile(observation, queries)


class ReferenceBackend:
    """The same programs in float64 numpy."""

    def __init__(self, setup: Setup) -> None:
        checkpoint = load_checkpoint(setup.checkpoint)
        policy = define_policy(checkpoint)
        self._compiled, self._ids = compile_policy(checkpoint, policy, setup.instruction)
        self._executable = ReferenceExecutor().load(self._compiled)
        self.details: dict[str, str] = {}

    def query(self, observation: RawObservation) -> npt.NDArray[np.float64]:
        """See :class:`vla_simd_ros.benchmarks.backend.Backend`."""
        return run_programs(self._executable, self._compiled, self._ids, observation)["action"]
