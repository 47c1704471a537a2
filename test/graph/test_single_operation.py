from __future__ import annotations

import numpy as np

from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Op
from vla_simd_ros.graph.single_operation import program_of

RNG = np.random.default_rng(0)
WEIGHT, BIAS = (RNG.standard_normal(s).astype(np.float32) for s in ((8, 4), (8,)))
X = RNG.standard_normal((20, 4)).astype(np.float32)


def graph() -> Graph:
    b = Builder()
    x = b.input("x", X.shape, DType.F32, Lifetime.QUERY)
    y = b.linear(x, b.constant("w", WEIGHT), b.constant("b", BIAS), name="y")
    b.output("action", b.activation("relu", b.add(y, y, name="twice"), name="action"))
    return b.graph()


def layer(ops: list[Op]) -> Op:
    return next(op for op in ops if op.kind == "linear")


def test_an_operation_alone_computes_what_it_did_in_the_program() -> None:
    compiled = compile_graph(graph(), FoldCache())
    single = program_of(layer(list(compiled.programs[Lifetime.QUERY].ops)), compiled.constants)
    assert len(single.programs[Lifetime.QUERY].ops) == 1
    (y,) = ReferenceExecutor().load(single).run(Lifetime.QUERY, {"x": X}).values()
    np.testing.assert_allclose(y, X.astype(np.float64) @ WEIGHT.T + BIAS, rtol=1e-12)


def test_constants_without_a_value_are_zero() -> None:
    single = program_of(layer(graph().ops))
    (y,) = ReferenceExecutor().load(single).run(Lifetime.QUERY, {"x": X}).values()
    assert y.shape == (20, 8)
    assert not y.any()
