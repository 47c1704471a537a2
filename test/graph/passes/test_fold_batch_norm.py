from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.passes.fold_batch_norm import fold_batch_norm

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(4, 3, 3, 2)).astype(np.float32)
PARAMETERS = [RNG.uniform(0.5, 2, 4).astype(np.float32) for _ in range(4)]


def normed(b: Builder, x: Tensor, name: str) -> Tensor:
    names = ("weight", "bias", "mean", "var")
    parameters = [b.constant(f"bn.{n}", value) for n, value in zip(names, PARAMETERS, strict=True)]
    return b.batch_norm(x, *parameters, eps=1e-5, name=name)


def image(b: Builder, name: str = "x", channels: int = 2) -> Tensor:
    return b.input(name, (5, 6, channels), DType.F32, Lifetime.QUERY)


def convolved() -> Graph:
    b = Builder()
    y = b.conv2d(image(b), b.constant("w", WEIGHT), padding=1, name="conv")
    b.output("y", normed(b, y, "bn"))
    return b.graph()


def test_it_goes_into_weights_and_bias_rounded_once() -> None:
    graph = fold_batch_norm(convolved(), FoldCache())
    assert [op.kind for op in graph.ops] == ["conv2d"]
    weight, bias, mean, var = (value.astype(np.float64) for value in PARAMETERS)
    scale = weight / np.sqrt(var + 1e-5)
    _, new_weight, new_bias, *_ = graph.ops[0].inputs
    assert new_weight is not None and new_bias is not None
    expected = (WEIGHT * scale[:, None, None, None]).astype(np.float32)
    np.testing.assert_array_equal(graph.constants[new_weight].array(), expected)
    np.testing.assert_array_equal(graph.constants[new_bias].array(), (bias - mean * scale).astype(np.float32))


def test_a_shared_layer_is_folded_once() -> None:
    b = Builder()
    for name in ("left", "right"):
        y = b.conv2d(image(b, name), b.constant("w", WEIGHT), padding=1, name=f"conv.{name}")
        b.output(name, normed(b, y, f"bn.{name}"))
    graph = fold_batch_norm(b.graph(), FoldCache())
    left, right = graph.ops
    assert left.inputs[1] is right.inputs[1] and left.inputs[2] is right.inputs[2]


def test_folding_again_gives_the_same_constants() -> None:
    cache = FoldCache()
    first, second = (fold_batch_norm(convolved(), cache) for _ in range(2))
    for index in (1, 2):
        one, other = first.ops[0].inputs[index], second.ops[0].inputs[index]
        assert one is not None and other is not None
        assert first.constants[one] is second.constants[other]


def test_without_a_layer_before_it_two_operations_remain() -> None:
    b = Builder()
    x = image(b, channels=4)
    b.output("y", normed(b, x, "bn"))
    graph = fold_batch_norm(b.graph(), FoldCache())
    assert [(op.kind, op.attrs["op"]) for op in graph.ops] == [("binary", "mul"), ("binary", "add")]


def test_a_result_that_others_read_is_left_alone() -> None:
    b = Builder()
    y = b.conv2d(image(b), b.constant("w", WEIGHT), padding=1, name="conv")
    b.output("raw", y)
    b.output("y", normed(b, y, "bn"))
    before = b.graph()
    after = fold_batch_norm(before, FoldCache())
    assert [op.kind for op in after.ops] == ["conv2d", "binary", "binary"]
    inputs = {"x": RNG.normal(size=(5, 6, 2)).astype(np.float32)}
    for name in ("raw", "y"):
        old = run_graph(before, inputs)[before.outputs[name]]
        new = run_graph(after, inputs)[after.outputs[name]]
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def test_parameters_that_are_no_constants_are_refused() -> None:
    b = Builder()
    parameters = [b.input(f"p{i}", (2,), DType.F32, Lifetime.QUERY) for i in range(4)]
    b.output("y", b.batch_norm(image(b), *parameters, eps=1e-5, name="bn"))
    with pytest.raises(GraphError, match=r"batch_norm 'bn': p0.* is not a constant"):
        fold_batch_norm(b.graph(), FoldCache())
