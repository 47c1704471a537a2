"""Times of the query program's operations on this engine."""

from __future__ import annotations

from collections.abc import Sequence

from vla_simd_ros.benchmarks.backend import Setup
from vla_simd_ros.benchmarks.inputs import query_inputs
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.simd_executor import RecordTime, SimdExecutor
from vla_simd_ros.fidelity.observations import RawObservation
from vla_simd_ros.fidelity.programs import compile_policy
from vla_simd_ros.graph.cost import op_bytes, op_flops
from vla_simd_ros.graph.ir import Lifetime, Op
from vla_simd_ros.policies.registry import define_policy


class ProfiledPolicy:
    """A policy on an engine of its own, for the times of its operations."""

    def __init__(self, setup: Setup) -> None:
        checkpoint = load_checkpoint(setup.checkpoint)
        self._compiled, ids = compile_policy(checkpoint, define_policy(checkpoint), setup.instruction)
        executor = SimdExecutor(threads=setup.threads, isa=setup.isa)
        self.isa = executor.isa
        self._executable = executor.load(self._compiled)
        self._executable.run(Lifetime.EPISODE, {} if ids is None else {"token_ids": ids})

    def profile(self, observation: RawObservation, queries: int) -> list[OpTime]:
        """Shortest time of each operation over ``queries`` queries, after one to warm up."""
        inputs = query_inputs(observation)
        self._executable.run(Lifetime.QUERY, inputs)
        return [_op_time(record) for record in self._executable.profile(Lifetime.QUERY, inputs, queries)]


def _op_time(record: RecordTime) -> OpTime:
    op = record.op
    copied = record.kernel == "copy"
    return OpTime(
        name=op.output.name,
        kind="copy" if copied else op.kind,
        block=op.block,
        shape=shape_text(op),
        rows=op.output.shape[0],
        flops=0 if copied else op_flops(op),
        nbytes=op_bytes(op),
        ms=float(record.ms),
    )


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
