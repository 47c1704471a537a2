from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.passes.hoist_row_slices import hoist_row_slices

TABLE = np.arange(20, dtype=np.float32).reshape(5, 4)


def rows(b: Builder, stop: int, start: int = 0, name: str = "rows") -> Tensor:
    return b.slice(b.constant("table", TABLE), axis=0, start=start, stop=stop, name=name)


def projected(b: Builder, x: Tensor, name: str = "y") -> Tensor:
    return b.linear(x, b.constant(f"{name}.w", np.full((2, 4), len(name), np.float32)), name=name)


def rewritten(b: Builder, output: Tensor) -> tuple[Graph, Op]:
    b.output("y", output)
    graph = hoist_row_slices(b.graph())
    return graph, graph.producers()[graph.outputs["y"]]


def source(op: Op) -> Tensor:
    (tensor,) = op.operands()
    return tensor


def test_a_projection_of_rows_becomes_rows_of_a_projection() -> None:
    b = Builder()
    graph, y = rewritten(b, projected(b, rows(b, 4, start=1)))
    assert (y.kind, y.attrs, y.output.name) == ("slice", {"axis": 0, "start": 1, "stop": 4}, "y")
    whole = graph.producers()[source(y)]
    assert (whole.kind, whole.output.shape, whole.output.name) == ("linear", (5, 2), "y.whole")


def test_columns_of_the_same_rows_are_put_together_before_rows_are_taken() -> None:
    b = Builder()
    taken = rows(b, 4)
    graph, y = rewritten(b, b.concat([projected(b, taken, n) for n in ("q", "key")], axis=1, name="y"))
    assert y.kind == "slice"
    whole = graph.producers()[source(y)]
    assert (whole.kind, whole.output.shape) == ("concat", (5, 4))
    assert [graph.producers()[t].kind for t in whole.operands()] == ["linear", "linear"]


@pytest.mark.parametrize("other", [(3, 0), (5, 2)])
def test_other_rows_beside_them_keep_columns_as_they_are(other: tuple[int, int]) -> None:
    b = Builder()
    stop, start = other
    parts = [rows(b, 3, name="a"), rows(b, stop, start, name="b")]
    if other == (3, 0):
        parts[1] = b.constant("b.table", np.ones((3, 4), np.float32))
    _, y = rewritten(b, b.concat(parts, axis=1, name="y"))
    assert y.kind == "concat"


def test_few_rows_of_a_long_table_are_projected_alone() -> None:
    b = Builder()
    _, y = rewritten(b, projected(b, rows(b, 2)))
    assert y.kind == "linear"


def test_what_is_not_known_at_load_stays() -> None:
    b = Builder()
    x = b.input("x", (5, 4), DType.F32, Lifetime.QUERY)
    _, y = rewritten(b, projected(b, b.slice(x, axis=0, start=0, stop=4, name="rows")))
    assert y.kind == "linear"


def test_columns_of_a_table_are_not_rows() -> None:
    b = Builder()
    wide = b.slice(b.constant("wide", np.ones((4, 5), np.float32)), axis=1, start=0, stop=4, name="columns")
    _, y = rewritten(b, projected(b, wide))
    assert y.kind == "linear"
