"""Times of the query program's operations on this engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vla_simd_ros.benchmarks.backend import Setup
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.simd_executor import RecordTime, SimdExecutor
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.cost import op_cost
from vla_simd_ros.graph.ir import Lifetime, Op
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy, Program
from vla_simd_ros.inference import Observation, observation_inputs


class ProfiledPolicy:
    """A policy on an engine of its own, for the times of its operations."""

    def __init__(self, setup: Setup) -> None:
        policy = instruct(load_checkpoint(setup.checkpoint), setup.instruction)
        self._spec, self._compiled, ids = policy.spec, policy.compiled, policy.token_ids
        executor = SimdExecutor(setup.settings)
        self.isa = executor.isa
        self._executor = executor
        self._executable = executor.load(self._compiled)
        self._executable.run(Lifetime.EPISODE, {} if ids is None else {"token_ids": ids})

    def profile(self, observation: Observation, queries: int) -> list[OpTime]:
        """Shortest time of each operation over ``queries`` queries, after one to warm up."""
        inputs = observation_inputs(self._spec, observation)
        self._executable.run(Lifetime.QUERY, inputs)
        return [_op_time(record) for record in self._executable.profile(Lifetime.QUERY, inputs, queries)]

    def alone_ms(self, name: str, repeats: int) -> float:
        """Shortest time of the query program's operation ``name``, repeated by itself on random operands."""
        op = next(op for op in self._compiled.programs[Lifetime.QUERY].ops if op.output.name == name)
        single = program_of(op, self._compiled)
        rng = np.random.default_rng(0)
        inputs = {
            name: rng.standard_normal(tensor.shape, np.float32)
            for name, tensor in single.programs[Lifetime.QUERY].inputs.items()
        }
        executable = self._executor.load(single)
        executable.run(Lifetime.QUERY, inputs)
        return float(sum(record.ms for record in executable.profile(Lifetime.QUERY, inputs, repeats)))


def program_of(op: Op, compiled: CompiledPolicy) -> CompiledPolicy:
    """A policy of this one operation, whose operands that are no constants are inputs."""
    operands = list(dict.fromkeys(op.operands()))
    constants = tuple(tensor for tensor in operands if tensor in compiled.constants)
    inputs = {tensor.name: tensor for tensor in operands if tensor not in compiled.constants}
    outputs = {op.output.name: op.output}

    def program(lifetime: Lifetime) -> Program:
        if lifetime is not Lifetime.QUERY:
            return Program(lifetime, (), {}, (), (), {}, ())
        return Program(lifetime, (op,), inputs, (), (op.output,), outputs, constants)

    return CompiledPolicy(
        programs={lifetime: program(lifetime) for lifetime in RUNTIME_LIFETIMES},
        process=program(Lifetime.PROCESS),
        constants={tensor: compiled.constants[tensor] for tensor in constants},
        inputs=inputs,
        outputs=outputs,
    )


def _op_time(record: RecordTime) -> OpTime:
    op = record.op
    copied = record.kernel == "copy"
    return OpTime(
        name=op.output.name,
        kind="copy" if copied else op.kind,
        block=op.block,
        shape=shape_text(op),
        rows=op.output.shape[0],
        cols=op.output.shape[-1],
        flops=0 if copied else product_flops(op),
        nbytes=op_cost(op).bytes,
        ms=float(record.ms),
    )


def product_flops(op: Op) -> int:
    """Floating-point operations of the products alone where there are any, because a share of the peak of
    fused multiply-adds is taken of them; what follows a product does not count."""
    if op.kind in ("linear", "conv2d"):
        _, weight = list(op.operands())[:2]
        return 2 * op.output.size * math.prod(weight.shape[1:])
    if op.kind == "attention":
        _, keys = list(op.operands())[:2]
        return 4 * op.output.size * keys.shape[0]
    return op_cost(op).flops


def shape_text(op: Op) -> str:
    """The sizes that set an operation's speed: rows x depth x columns of a linear layer, and so on."""
    shapes = [tensor.shape for tensor in op.operands()]
    if op.kind == "linear":
        rows, depth = shapes[0]
        return f"{rows}x{depth}x{op.output.shape[1]}"
    if op.kind == "conv2d":
        channels_out, kernel_h, kernel_w, _ = shapes[1]
        window = f"{kernel_h}x{kernel_w}/{op.attrs['stride']}"
        return f"{_join(shapes[0])} {window} {channels_out}"
    if op.kind == "attention":
        return f"{shapes[0][0]}x{shapes[1][0]} {op.attrs['heads']} heads of {_head_width(op)}"
    return _join(op.output.shape)


def _head_width(op: Op) -> int:
    return int(op.output.shape[1] // op.attrs["heads"])


def _join(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
