"""The query program of a policy for the peers: the same operations, constants and cached text as ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.benchmarks.backend import BenchmarkError, Setup, require
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.ir import Array, Lifetime
from vla_simd_ros.inference import Observation, observation_inputs
from vla_simd_ros.policies.base import PolicySpec


@dataclass(frozen=True)
class QueryProgram:
    """A PyTorch module, and what to call it with.

    Its arguments are the runtime inputs ``names`` in that order, raw frames ``[H, W, 3]`` uint8 and state
    ``[1, width]`` among them, then the ``cached`` results of the episode program. It normalizes the frames
    itself and returns the actions in robot units ``[chunk, action width]``. ``examples`` are arguments of
    the right shapes, for tracing.
    """

    spec: PolicySpec
    module: Any
    names: tuple[str, ...]
    cached: tuple[Array, ...]
    examples: tuple[Array, ...]

    def arguments(self, observation: Observation) -> list[Array]:
        """The values of one observation, then the cached ones."""
        values = observation_inputs(self.spec, observation)
        return [*(values[name] for name in self.names), *self.cached]

    @property
    def argument_names(self) -> list[str]:
        """Names without dots, for file formats that reserve them."""
        cached = [f"cached_{index}" for index in range(len(self.cached))]
        return [*(name.replace(".", "_") for name in self.names), *cached]


def load_query_program(setup: Setup, runner: str) -> QueryProgram:
    """Read the checkpoint, encode the instruction once, and make the module of what remains per query.

    Raises ``BenchmarkError`` for a policy that steps through a solver, which the peers' program is not.
    """
    require("torch", runner)
    from vla_simd_ros.executors.torch_executor import TorchExecutor, torch_module

    policy = instruct(load_checkpoint(setup.checkpoint), setup.instruction)
    compiled, ids = policy.compiled, policy.token_ids
    if compiled.programs[Lifetime.STEP].ops:
        raise BenchmarkError(f"policy '{policy.spec.type}' has solver steps, expected one program per query")
    executable = TorchExecutor().load(compiled)
    executable.run(Lifetime.EPISODE, {} if ids is None else {"token_ids": ids})
    program = compiled.programs[Lifetime.QUERY]
    cached = tuple(executable.tensor(tensor) for tensor in program.uses)
    zeros = (np.zeros(tensor.shape, tensor.dtype.numpy) for tensor in program.inputs.values())
    return QueryProgram(
        spec=policy.spec,
        module=torch_module(program, compiled.constants).eval(),
        names=tuple(program.inputs),
        cached=cached,
        examples=(*zeros, *cached),
    )
