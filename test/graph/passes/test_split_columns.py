from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.graph.passes.split_columns import split_columns


def random(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def given(b: Builder, name: str, width: int, lifetime: Lifetime) -> Tensor:
    return b.input(name, (1, width), DType.F32, lifetime)


def linears(graph: Graph) -> list[tuple[str, Lifetime, list[str | None]]]:
    """Input, lifetime, and bias and residual of each linear layer."""
    return [
        (op.inputs[0].name, op.output.lifetime, [t and t.name for t in op.inputs[2:4]])  # type: ignore[union-attr]
        for op in graph.ops
        if op.kind == "linear"
    ]


def test_each_lifetime_has_its_own_columns_and_is_a_residual_of_the_shorter_lived() -> None:
    b = Builder()
    time, seen = given(b, "time", 2, Lifetime.STEP), given(b, "seen", 3, Lifetime.QUERY)
    x = b.activation("mish", b.concat([time, seen], axis=1, name="both"), name="active")
    y = b.linear(x, b.constant("w", random(4, 5)), b.constant("b", random(4)), name="y")
    b.output("y", y)
    graph = split_columns(b.graph())
    assert linears(graph) == [
        ("active(seen)", Lifetime.QUERY, ["b", None]),
        ("active(time)", Lifetime.STEP, [None, "y(active(seen))"]),
    ]
    columns = [
        (op.attrs["start"], op.attrs["stop"]) for op in graph.ops if op.output.name.endswith(".weight")
    ]
    assert columns == [(2, 5), (0, 2)]
    assert graph.outputs["y"] is y


def test_neighbours_of_one_lifetime_stay_together() -> None:
    b = Builder()
    time = given(b, "time", 2, Lifetime.STEP)
    seen = [given(b, name, 3, Lifetime.QUERY) for name in ("left", "right")]
    x = b.concat([*seen, time], axis=1, name="all")
    b.output("y", b.linear(x, b.constant("w", random(4, 8)), name="y"))
    assert [name for name, *_ in linears(split_columns(b.graph()))] == ["all.part0", "time"]


def test_what_comes_twice_has_columns_of_its_own() -> None:
    b = Builder()
    time, seen = given(b, "time", 2, Lifetime.STEP), given(b, "seen", 2, Lifetime.QUERY)
    x = b.concat([seen, time, seen], axis=1, name="all")
    b.output("y", b.linear(x, b.constant("w", random(4, 6)), name="y"))
    starts = [op.attrs["start"] for op in split_columns(b.graph()).ops if op.kind == "slice"]
    assert sorted(starts) == [0, 2, 4]


def test_one_lifetime_rows_and_computed_weights_are_left_alone() -> None:
    b = Builder()
    time, seen = given(b, "time", 2, Lifetime.STEP), given(b, "seen", 2, Lifetime.QUERY)
    weight = b.constant("w", random(4, 4))
    b.output("same", b.linear(b.concat([seen, seen], axis=1, name="twice"), weight, name="same"))
    rows = b.concat([time, seen], axis=0, name="rows")
    b.output("rows", b.linear(rows, b.constant("v", random(4, 2)), name="of_rows"))
    both = b.concat([time, seen], axis=1, name="both")
    b.output("made", b.linear(both, b.concat([both] * 3, axis=0, name="made"), name="by_made"))
    graph = b.graph()
    assert [op.output.name for op in split_columns(graph).ops] == [op.output.name for op in graph.ops]
