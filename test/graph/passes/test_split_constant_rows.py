from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.lazy_array import given
from vla_simd_ros.graph.passes.split_constant_rows import split_constant_rows


def projection_of(b: Builder, parts: list[Tensor]) -> Graph:
    weight = b.constant("w", np.ones((2, 4), np.float32))
    b.output("y", b.linear(b.concat(parts, axis=0, name="rows"), weight, name="y"))
    return b.graph()


def test_constant_parts_are_projected_one_by_one() -> None:
    b = Builder()
    parts = [b.constant(f"part{rows}", np.ones((rows, 4), np.float32)) for rows in (1, 3)]
    graph = split_constant_rows(projection_of(b, parts))
    y = graph.producers()[graph.outputs["y"]]
    assert y.kind == "concat"
    assert [t.shape for t in y.operands()] == [(1, 2), (3, 2)]


def test_a_layer_with_a_residual_stays_whole() -> None:
    b = Builder()
    parts = [b.constant(f"part{rows}", np.ones((rows, 4), np.float32)) for rows in (1, 3)]
    graph = projection_of(b, parts)
    y = graph.ops[-1]
    residual = Tensor("residual", (4, 2), DType.F32, Lifetime.PROCESS, "")
    graph.constants[residual] = given(np.ones((4, 2), np.float32))
    graph.ops[-1] = Op("linear", (*y.inputs[:3], residual, None, None), y.output, y.attrs)
    assert [op.kind for op in split_constant_rows(graph).ops] == ["concat", "linear"]


def test_runtime_rows_stay_together() -> None:
    b = Builder()
    parts = [
        b.constant("part", np.ones((1, 4), np.float32)),
        b.input("x", (3, 4), DType.F32, Lifetime.QUERY),
    ]
    graph = split_constant_rows(projection_of(b, parts))
    assert graph.producers()[graph.outputs["y"]].kind == "linear"
