from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.passes.hoist_embeddings import hoist_embeddings
from vla_simd_ros.graph.passes.split_columns import split_columns

WIDTH = 4


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def looked_up(b: Builder, rows: int = WIDTH, lifetime: Lifetime = Lifetime.STEP) -> Tensor:
    ids = b.input("ids", (1,), DType.I32, lifetime)
    return b.embedding(b.constant("table", ones(rows, WIDTH)), ids, name="row")


def lifetimes(graph: Graph) -> dict[str, Lifetime]:
    return {op.output.name: op.output.lifetime for op in graph.ops}


def test_a_small_table_is_taken_through_layers_and_activations() -> None:
    b = Builder()
    x = b.linear(looked_up(b), b.constant("w", ones(6, WIDTH)), b.constant("b", ones(6)), name="wide")
    y = b.linear(b.activation("mish", x, name="active"), b.constant("v", ones(3, 6)), name="y")
    b.output("y", y)
    graph = hoist_embeddings(b.graph())
    computed = [op for op in graph.ops if op.kind != "embedding"]
    assert [op.output.lifetime for op in computed] == [Lifetime.PROCESS] * 3
    last = graph.ops[-1]
    assert (last.kind, last.output) == ("embedding", y)
    assert [t.name for t in last.operands()] == ["y.table", "ids"]


def test_what_is_added_is_added_to_the_row() -> None:
    b = Builder()
    seen = b.input("seen", (1, 2), DType.F32, Lifetime.QUERY)
    both = b.concat([looked_up(b), seen], axis=1, name="both")
    b.output("y", b.linear(both, b.constant("w", ones(3, WIDTH + 2)), name="y"))
    graph = hoist_embeddings(split_columns(b.graph()))
    assert lifetimes(graph)["y.table"] is Lifetime.PROCESS
    last = graph.ops[-1]
    assert last.kind == "binary" and last.attrs["op"] == "add"
    assert [t.name for t in last.operands()] == ["y.row", "y(seen)"]


@pytest.mark.parametrize("rows", [WIDTH + 1, 100])
def test_a_table_of_more_rows_than_columns_is_left_alone(rows: int) -> None:
    b = Builder()
    b.output("y", b.linear(looked_up(b, rows), b.constant("w", ones(3, WIDTH)), name="y"))
    assert lifetimes(hoist_embeddings(b.graph()))["y"] is Lifetime.STEP
    assert len(hoist_embeddings(b.graph()).ops) == 2


def test_norms_of_rows_are_left_alone() -> None:
    """Only what makes a step cheaper is worth a table of its own."""
    b = Builder()
    weight = b.constant("w", ones(WIDTH))
    b.output("y", b.layer_norm(looked_up(b), weight, b.constant("b", ones(WIDTH)), eps=1e-5, name="y"))
    assert [op.kind for op in hoist_embeddings(b.graph()).ops] == ["embedding", "layer_norm"]
