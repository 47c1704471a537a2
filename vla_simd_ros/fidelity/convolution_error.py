"""What the algorithm of each convolution does to its output: beside the direct method, on the same input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.measure import Distance, distance
from vla_simd_ros.fidelity.programs import InstructedPolicy
from vla_simd_ros.graph.ir import Array, Lifetime, Op
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.graph.single_operation import program_of


@dataclass(frozen=True)
class ConvolutionError:
    """How far the output of a convolution, with everything fused into it, is from that of the direct method:
    the worst over all observations. ``kernel`` names what computes it."""

    layer: str
    kernel: str
    error: Distance


def convolution_errors(
    executor: SimdExecutor, policy: InstructedPolicy, cases: Sequence[Case]
) -> list[ConvolutionError]:
    """For every convolution, in execution order, on the inputs that it has in a query of ``executor``; in its
    last step for those of steps."""
    policy = policy.keeping_every_tensor()
    ops = [op for p in policy.compiled.programs.values() for op in p.ops if op.kind == "conv2d"]
    direct = SimdExecutor(executor.settings.but(convolution="direct", convolution_layers=""))
    run = executor.load(policy.compiled)
    errors: dict[Op, list[Distance]] = {op: [] for op in ops}
    for case in cases:
        policy.run(run, case)
        for op in ops:
            expected = _again(direct, op, policy.compiled, run)
            errors[op].append(distance(run.tensor(op.output), expected))
    return [ConvolutionError(op.output.name, executor.kernel_name(op), _worst(errors[op])) for op in ops]


def _again(executor: SimdExecutor, op: Op, compiled: CompiledPolicy, run: Executable) -> Array:
    """The output of ``op`` from ``executor``, on the inputs that it has in ``run``."""
    single = program_of(op, compiled.constants)
    inputs = {name: run.tensor(tensor) for name, tensor in single.inputs.items()}
    return executor.load(single).run(Lifetime.QUERY, inputs)[op.output.name]


def _worst(errors: Sequence[Distance]) -> Distance:
    return Distance(
        max(error.absolute for error in errors),
        max(error.relative for error in errors),
        max(error.rms for error in errors),
    )
