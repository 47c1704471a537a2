"""A fault put into one operation must be found in that operation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.base import Executable
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.fidelity.trace import first_departure, trace
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy


class Faulty:
    """Executes in float32, and falsifies what is asked of one tensor and those after it."""

    isa = "faulty"
    threads = 1

    def __init__(self, name: str, factor: float) -> None:
        self._name = name
        self._factor = factor

    def load(self, compiled: CompiledPolicy) -> Executable:
        inner = ReferenceExecutor(np.float32).load(compiled)
        names = [op.output.name for program in compiled.programs.values() for op in program.ops]
        wrong = set(names[names.index(self._name) :])
        factor = self._factor

        class Run:
            def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
                return inner.run(lifetime, inputs)

            def tensor(self, tensor: Tensor) -> Array:
                value = inner.tensor(tensor)
                return value * factor if tensor.name in wrong else value

        return Run()


def test_the_engine_departs_nowhere(seeing: Checkpoint) -> None:
    policy = instruct(seeing, "")
    entries = list(trace(SimdExecutor(threads=1), policy, random_cases(seeing, 1, seed=0)[0]))

    computed = [op.output for program in policy.compiled.programs.values() for op in program.ops]
    assert [entry.tensor for entry in entries] == [t for t in computed if t.dtype is DType.F32]
    assert first_departure(entries) is None
    assert max(entry.error.relative for entry in entries) > 0


@pytest.mark.parametrize("factor", [1 + 1e-4, float("nan")])
def test_finds_the_first_wrong_tensor(blind: Checkpoint, factor: float) -> None:
    policy = instruct(blind, "")
    ops = [op.output.name for program in policy.compiled.programs.values() for op in program.ops]
    name = ops[len(ops) // 2]
    entries = list(trace(Faulty(name, factor), policy, random_cases(blind, 1, seed=0)[0]))

    first = first_departure(entries)
    assert first is not None
    assert first.tensor.name == name
