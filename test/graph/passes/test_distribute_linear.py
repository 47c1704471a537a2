from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.passes.distribute_linear import distribute_linear


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def projected(b: Builder, x: Tensor, positions: Tensor) -> Graph:
    weight, bias = b.constant("w", ones(2, 4)), b.constant("b", ones(2))
    b.output("y", b.linear(b.add(x, positions, name="sum"), weight, bias, name="y"))
    return b.graph()


def linears(graph: Graph) -> dict[str, tuple[str, Lifetime]]:
    """Input and lifetime of each linear layer, by name."""
    return {
        op.output.name: (op.inputs[0].name, op.output.lifetime)  # type: ignore[union-attr]
        for op in graph.ops
        if op.kind == "linear"
    }


def test_constant_positions_become_a_constant_residual() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
    graph = distribute_linear(projected(b, x, b.constant("positions", ones(3, 4))))
    assert linears(graph) == {
        "y(positions)": ("positions", Lifetime.PROCESS),
        "y": ("x", Lifetime.QUERY),
    }
    y = next(op for op in graph.ops if op.output.name == "y")
    assert [t and t.name for t in y.inputs] == ["x", "w", "b", "y(positions)", None, None]


def test_the_longer_lived_part_is_found_on_either_side() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.STEP)
    text = b.input("text", (3, 4), DType.F32, Lifetime.EPISODE)
    graph = distribute_linear(projected(b, text, x))
    assert linears(graph) == {"y(text)": ("text", Lifetime.EPISODE), "y": ("x", Lifetime.STEP)}


def test_sums_of_sums_are_taken_apart_completely() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
    text = b.input("text", (3, 4), DType.F32, Lifetime.EPISODE)
    inner = b.add(text, b.constant("positions", ones(3, 4)), name="inner")
    graph = distribute_linear(projected(b, x, inner))
    assert set(linears(graph).values()) == {
        ("positions", Lifetime.PROCESS),
        ("text", Lifetime.EPISODE),
        ("x", Lifetime.QUERY),
    }


def test_a_vector_added_to_all_rows_becomes_a_row() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
    graph = distribute_linear(projected(b, x, b.constant("v", ones(4))))
    y = next(op for op in graph.ops if op.output.name == "y")
    assert y.inputs[3] is not None and y.inputs[3].shape == (1, 2)


def test_equal_lifetimes_and_short_lived_rows_stay() -> None:
    b = Builder()
    x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
    same = projected(b, x, b.input("z", (3, 4), DType.F32, Lifetime.QUERY))
    assert linears(distribute_linear(same)) == {"y": ("sum", Lifetime.QUERY)}
    b = Builder()
    positions = b.constant("positions", ones(3, 4))
    row = projected(b, positions, b.input("row", (1, 4), DType.F32, Lifetime.QUERY))
    assert linears(distribute_linear(row)) == {"y": ("sum", Lifetime.QUERY)}


def test_what_is_no_row_stays_in_the_sum() -> None:
    for shape in ((1,), (3, 1)):
        b = Builder()
        x = b.input("x", (3, 4), DType.F32, Lifetime.QUERY)
        graph = distribute_linear(projected(b, x, b.constant("positions", ones(*shape))))
        assert [op.kind for op in graph.ops] == ["binary", "linear"]
