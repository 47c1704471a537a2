"""A policy of one operation, to time it or to look at it by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vla_simd_ros.graph.ir import LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.lazy_array import MadeArray
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy, Program


def program_of(op: Op, constants: Mapping[Tensor, LazyArray] | None = None) -> CompiledPolicy:
    """A policy of this one operation, run by its query program; operands that are no constants are inputs.

    What is known at load but has no value in ``constants``, because it has not been folded yet, is zero.
    """
    operands = list(dict.fromkeys(op.operands()))
    known = tuple(tensor for tensor in operands if tensor.lifetime is Lifetime.PROCESS)
    inputs = {tensor.name: tensor for tensor in operands if tensor.lifetime is not Lifetime.PROCESS}
    outputs = {op.output.name: op.output}

    def program(lifetime: Lifetime) -> Program:
        if lifetime is not Lifetime.QUERY:
            return Program(lifetime, (), {}, (), (), {}, ())
        return Program(lifetime, (op,), inputs, (), (op.output,), outputs, known)

    return CompiledPolicy(
        programs={lifetime: program(lifetime) for lifetime in RUNTIME_LIFETIMES},
        process=program(Lifetime.PROCESS),
        constants={tensor: _value(tensor, constants or {}) for tensor in known},
        inputs=inputs,
        outputs=outputs,
    )


def _value(tensor: Tensor, constants: Mapping[Tensor, LazyArray]) -> LazyArray:
    if tensor in constants:
        return constants[tensor]
    dtype = tensor.dtype.numpy
    return MadeArray(tensor.shape, dtype, lambda: np.zeros(tensor.shape, dtype))
