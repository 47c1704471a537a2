"""Compiling a checkpoint's policy and running all of its programs once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.fidelity.observations import RawObservation
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.policies.base import PolicyDefinition

TokenIds = npt.NDArray[np.int32]


def compile_policy(
    checkpoint: Checkpoint, policy: PolicyDefinition, instruction: str
) -> tuple[CompiledPolicy, TokenIds | None]:
    """The policy compiled for ``instruction``, and the instruction's tokens where it takes one."""
    if not policy.spec.uses_instruction:
        return compile_graph(policy.build(), FoldCache()), None
    ids = np.array(checkpoint.tokenizer().encode(instruction), np.int32)
    return compile_graph(policy.build(len(ids)), FoldCache()), ids


def run_programs(
    executable: Executable, compiled: CompiledPolicy, ids: TokenIds | None, observation: RawObservation
) -> dict[str, Array]:
    """Run the episode, query and step programs once each; returns the outputs of all."""
    values: dict[str, Array | None] = {"token_ids": ids}
    values |= {f"image.{name}": image for name, image in observation.images.items()}
    values["state"] = None if observation.state is None else observation.state[None]
    values["env_state"] = None if observation.env_state is None else observation.env_state[None]
    outputs: dict[str, Array] = {}
    for lifetime in (Lifetime.EPISODE, Lifetime.QUERY, Lifetime.STEP):
        program = compiled.programs[lifetime]
        inputs = {name: value for name in program.inputs if (value := values.get(name)) is not None}
        outputs |= executable.run(lifetime, inputs)
    return outputs
