from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.convolution_error import ConvolutionError, convolution_errors
from vla_simd_ros.fidelity.measure import distance
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.single_operation import program_of


def errors(checkpoint: Checkpoint, count: int = 1, **settings: Any) -> list[ConvolutionError]:
    executor = SimdExecutor(threads=1, **settings)
    return convolution_errors(executor, instruct(checkpoint, ""), random_cases(checkpoint, count, 0))


def test_the_direct_method_has_no_error_and_every_layer_is_there(seeing: Checkpoint) -> None:
    found = errors(seeing, convolution="direct")
    ops = [op for p in instruct(seeing, "").compiled.programs.values() for op in p.ops]
    assert [row.layer for row in found] == [op.output.name for op in ops if op.kind == "conv2d"]
    assert all(row.error.absolute == row.error.rms == 0 for row in found)


def test_tiles_of_four_round_more_than_tiles_of_two(seeing: Checkpoint) -> None:
    two, four = (errors(seeing, convolution=name) for name in ("winograd2", "winograd4"))
    pairs = [(a.error, b.error) for a, b in zip(two, four, strict=True) if a.kernel.startswith("winograd2")]
    assert len(pairs) > 10
    assert all(0 < a.rms < 2e-6 and a.rms < b.rms < 1e-5 for a, b in pairs)
    assert {row.error.absolute for row in two if row.kernel.startswith("conv2d")} == {0.0}


def test_the_input_is_that_of_the_query(seeing: Checkpoint) -> None:
    """The error of the first layer against a float64 evaluation of the same picture."""
    policy = instruct(seeing, "").keeping_every_tensor()
    (case,) = random_cases(seeing, 1, 0)
    executor = SimdExecutor(threads=1, convolution="winograd4")
    run = executor.load(policy.compiled)
    policy.run(run, case)
    (row, *_) = errors(seeing, convolution="winograd4")
    op = next(o for p in policy.compiled.programs.values() for o in p.ops if o.output.name == row.layer)
    single = program_of(op, policy.compiled.constants)
    inputs = {name: run.tensor(tensor) for name, tensor in single.inputs.items()}
    expected = ReferenceExecutor(np.float64).load(single).run(Lifetime.QUERY, inputs)[row.layer]
    exact = distance(run.tensor(op.output), expected)
    assert row.error.relative == pytest.approx(exact.relative, rel=0.5)


def test_the_worst_of_several_observations_counts(seeing: Checkpoint) -> None:
    one, three = (errors(seeing, count, convolution="winograd4") for count in (1, 3))
    pairs = list(zip(one, three, strict=True))
    assert all(a.error.rms <= b.error.rms and a.error.relative <= b.error.relative for a, b in pairs)
    assert any(a.error.relative < b.error.relative for a, b in pairs)
