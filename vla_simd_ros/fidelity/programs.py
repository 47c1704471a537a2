"""A checkpoint's policy compiled for one instruction, to be run by any executor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array
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


def instruct(checkpoint: Checkpoint, instruction: str) -> InstructedPolicy:
    """Compile the policy of ``checkpoint``. Raises CheckpointError, InstructionError."""
    policy = define_policy(checkpoint)
    if not policy.spec.uses_instruction:
        return InstructedPolicy(policy.spec, compile_graph(policy.build(), FoldCache()), None)
    ids = np.array(checkpoint.tokenizer().encode(instruction), np.int32)
    return InstructedPolicy(policy.spec, compile_graph(policy.build(len(ids)), FoldCache()), ids)
