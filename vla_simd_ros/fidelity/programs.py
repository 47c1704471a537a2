"""A checkpoint's policy compiled for one instruction, to be run by any executor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.int8_groups import group_names
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.graph.passes.quantize import with_int8_layers
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy, Program
from vla_simd_ros.inference import Observation, observation_inputs
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.registry import define_policy


@dataclass(frozen=True, eq=False)
class InstructedPolicy:
    """Compiled programs, and the instruction's tokens where the policy takes one."""

    spec: PolicySpec
    compiled: CompiledPolicy
    token_ids: npt.NDArray[np.int32] | None

    def run(self, executable: Executable, observation: Observation) -> dict[str, Array]:
        """Run every program once; the outputs in the executor's own precision."""
        values = observation_inputs(self.spec, observation)
        if self.token_ids is not None:
            values["token_ids"] = self.token_ids
        outputs: dict[str, Array] = {}
        for lifetime in RUNTIME_LIFETIMES:
            inputs = {name: values[name] for name in self.compiled.programs[lifetime].inputs}
            outputs |= executable.run(lifetime, inputs)
        return outputs

    def keeping_every_tensor(self) -> InstructedPolicy:
        """The same programs, providing every tensor they compute."""

        def keep(program: Program) -> Program:
            return replace(program, provides=tuple(op.output for op in program.ops))

        programs = {lifetime: keep(program) for lifetime, program in self.compiled.programs.items()}
        return replace(self, compiled=replace(self.compiled, programs=programs))

    def with_int8(self, layers: Collection[Tensor]) -> InstructedPolicy:
        """The same programs with the layers that compute ``layers`` in int8."""
        return replace(self, compiled=with_int8_layers(self.compiled, layers))


def instruct(checkpoint: Checkpoint, instruction: str, int8: str | Sequence[str] = "") -> InstructedPolicy:
    """Compile the policy of ``checkpoint``, the groups named by ``int8`` in int8. Raises CheckpointError,
    InstructionError, Int8GroupError."""
    policy = define_policy(checkpoint)
    ids = None
    if policy.spec.uses_instruction:
        ids = np.array(checkpoint.tokenizer().encode(instruction), np.int32)
    graph = policy.build(None if ids is None else len(ids))
    return InstructedPolicy(policy.spec, compile_graph(graph, FoldCache(), group_names(int8)), ids)
