"""The programs of a policy for the peers: the same operations, constants and cached text as ours.

What a peer has to compute for a query is the query program once, and where the policy iterates the step
program for each step. Each is a model of its own, so that a peer too computes what the steps share once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vla_simd_ros.benchmarks.backend import BenchmarkError, Setup, require
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy, Program


@dataclass(frozen=True, eq=False)
class PeerProgram:
    """A program as a PyTorch module, called with its ``arguments`` in order and giving a tuple of its
    ``results``; both by names without dots, which some file formats reserve.

    The arguments are the runtime inputs, raw frames ``[H, W, 3]`` uint8 and state among them, then what
    other programs left behind, as far as it reads them. ``outputs`` names the results that the graph gives.
    """

    name: str
    module: Any
    arguments: Mapping[str, Tensor]
    results: Mapping[str, Tensor]
    outputs: Mapping[str, str]

    @property
    def examples(self) -> tuple[Array, ...]:
        """Arguments of the right shapes, for tracing."""
        return tuple(np.zeros(tensor.shape, tensor.dtype.numpy) for tensor in self.arguments.values())


@dataclass(frozen=True, eq=False)
class PolicyPrograms:
    """A policy for the peers, its instruction encoded.

    ``by_lifetime`` holds QUERY, and STEP where the policy iterates; a result of the first that the second
    takes has the same name in both. ``kept`` are arguments by name that last as long as the instruction.
    """

    policy: InstructedPolicy
    by_lifetime: Mapping[Lifetime, PeerProgram]
    kept: Mapping[str, Array]


def load_policy_programs(setup: Setup, runner: str) -> PolicyPrograms:
    """Read the checkpoint, encode the instruction once, and make modules of what remains for a query."""
    require("torch", runner)
    policy = instruct(load_checkpoint(setup.checkpoint), setup.instruction)
    return policy_programs(policy)


def policy_programs(policy: InstructedPolicy) -> PolicyPrograms:
    """Encode the instruction, and make a module of each program that remains. Raises BenchmarkError for a
    policy whose programs share more than values."""
    if policy.decoder is not None:
        raise no_peers(policy.spec.type)
    compiled = policy.compiled
    programs = [compiled.programs[lifetime] for lifetime in (Lifetime.QUERY, Lifetime.STEP)]
    passed = dict.fromkeys(tensor for program in programs for tensor in program.uses)
    names = {tensor: f"kept_{index}" for index, tensor in enumerate(passed)}
    names |= {tensor: f"result_{name}" for name, tensor in compiled.outputs.items()}
    names |= {tensor: argument_name(name) for name, tensor in compiled.inputs.items()}
    by_lifetime = {
        program.lifetime: _program(program, compiled, names) for program in programs if program.ops
    }
    return PolicyPrograms(policy, by_lifetime, _episode(policy, names))


def _episode(policy: InstructedPolicy, names: Mapping[Tensor, str]) -> dict[str, Array]:
    """What the instruction leaves behind."""
    import torch

    from vla_simd_ros.executors.torch_executor import ProgramModule

    program = policy.compiled.programs[Lifetime.EPISODE]
    module = ProgramModule(program, policy.compiled.constants, program.provides)
    given = [] if policy.token_ids is None else [torch.from_numpy(policy.token_ids)]
    with torch.no_grad():
        results = module(*given)
    # Without gaps: the peers are told where the values lie.
    arrays = (np.ascontiguousarray(value.numpy()) for value in results)
    return {names[tensor]: array for tensor, array in zip(program.provides, arrays, strict=True)}


def no_peers(policy: str) -> BenchmarkError:
    """The error of a policy that no peer can be given."""
    return BenchmarkError(
        f"no peer runs '{policy}': its programs keep keys and values between them, which no exported model "
        "does; expected none of --peers, and this engine's decoders side by side with --decoders"
    )


def argument_name(name: str) -> str:
    """The name of a runtime input as an argument."""
    return name.replace(".", "_")


def _program(program: Program, compiled: CompiledPolicy, names: Mapping[Tensor, str]) -> PeerProgram:
    from vla_simd_ros.executors.torch_executor import ProgramModule

    read = {tensor for op in program.ops for tensor in op.operands()}
    program = replace(program, inputs={name: t for name, t in program.inputs.items() if t in read})
    # An observed value that the steps read is an argument of theirs, not a result of the query program.
    results = [tensor for tensor in program.provides if tensor not in compiled.inputs.values()]
    return PeerProgram(
        program.lifetime.name.lower(),
        ProgramModule(program, compiled.constants, results).eval(),
        {names[tensor]: tensor for tensor in (*program.inputs.values(), *program.uses)},
        {names[tensor]: tensor for tensor in results},
        {name: names[tensor] for name, tensor in program.outputs.items()},
    )
