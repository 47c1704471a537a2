from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import optimize
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.passes.merge_linears import merge_linears

RNG = np.random.default_rng(0)


def constant(b: Builder, name: str, *shape: int) -> Tensor:
    return b.constant(name, RNG.normal(size=shape).astype(np.float32))


def rows(b: Builder, name: str, lifetime: Lifetime = Lifetime.QUERY) -> Tensor:
    return b.input(name, (3, 4), DType.F32, lifetime)


def layer(b: Builder, x: Tensor, name: str, width: int = 4, bias: bool = True) -> Tensor:
    return b.linear(
        x, constant(b, f"{name}.w", width, 4), constant(b, f"{name}.b", width) if bias else None, name=name
    )


def runtime_linears(graph: Graph) -> list[Op]:
    return [op for op in graph.ops if op.kind == "linear" and op.output.lifetime is not Lifetime.PROCESS]


def test_layers_of_one_input_become_one_and_slices() -> None:
    b = Builder()
    x = rows(b, "x")
    with b.block("attn"):
        parts = [layer(b, x, name, width) for name, width in (("q", 4), ("k", 2), ("v", 6))]
    for part in parts:
        b.output(part.name, part)
    graph = merge_linears(b.graph())
    (merged,) = runtime_linears(graph)
    assert merged.output.shape == (3, 12)
    assert merged.output.name == "attn.q+k+v"
    assert merged.block == "attn"
    producers = graph.producers()
    ranges = [(producers[p].attrs["start"], producers[p].attrs["stop"]) for p in parts]
    assert ranges == [(0, 4), (4, 6), (6, 12)]


def test_a_missing_bias_counts_as_zero() -> None:
    b = Builder()
    x = rows(b, "x")
    b.output("one", layer(b, x, "one", bias=False))
    b.output("two", layer(b, x, "two"))
    graph = merge_linears(b.graph())
    (merged,) = runtime_linears(graph)
    joined = graph.producers()[merged.inputs[2]]  # type: ignore[index]
    zero = joined.inputs[0]
    assert zero is not None and not graph.constants[zero].array().any()


def test_positions_become_a_residual_of_those_that_have_them() -> None:
    b = Builder()
    x, positions = rows(b, "x"), constant(b, "positions", 3, 4)
    positioned = b.add(x, positions, name="positioned")
    for name, source in (("q", positioned), ("k", positioned), ("v", x)):
        b.output(name, layer(b, source, name))
    graph = optimize(b.graph(), FoldCache())
    merged, values = runtime_linears(graph)
    assert (merged.output.shape, values.output.shape) == ((3, 8), (3, 4))
    assert values.inputs[3] is None
    joined = graph.producers()[merged.inputs[3]]  # type: ignore[index]
    assert joined.attrs == {"axis": 1}
    assert [graph.producers()[part].kind for part in joined.operands()] == ["linear", "linear"]


def test_layers_of_different_blocks_are_not_merged() -> None:
    b = Builder()
    memory = rows(b, "memory")
    for number in range(2):
        with b.block(f"decoder.{number}"):
            b.output(f"k{number}", layer(b, memory, f"k{number}"))
    assert [op.block for op in runtime_linears(merge_linears(b.graph()))] == ["decoder.0", "decoder.1"]


def test_different_activations_lifetimes_or_inputs_are_not_merged() -> None:
    b = Builder()
    x, text = rows(b, "x"), rows(b, "text", Lifetime.EPISODE)
    b.output("a", b.activation("relu", layer(b, x, "one"), name="relu"))
    b.output("b", layer(b, x, "two"))
    b.output("c", layer(b, text, "three"))
    b.output("d", b.add(layer(b, text, "four"), x, name="sum"))
    names = [op.output.name for op in runtime_linears(optimize(b.graph(), FoldCache()))]
    assert names == ["relu", "two", "three+four"]


def test_a_layer_that_waits_for_a_runtime_residual_is_not_merged() -> None:
    b = Builder()
    x = rows(b, "x")
    b.output("a", b.add(layer(b, x, "one"), rows(b, "r"), name="sum"))
    b.output("b", layer(b, x, "two"))
    assert len(runtime_linears(optimize(b.graph(), FoldCache()))) == 2


def test_residuals_of_one_row_and_of_many_are_not_merged() -> None:
    b = Builder()
    x = rows(b, "x")
    for name, count in (("one", 1), ("many", 3)):
        positioned = b.add(x, constant(b, f"{name}.positions", count, 4), name=f"{name}.positioned")
        b.output(name, layer(b, positioned, name))
    assert len(runtime_linears(optimize(b.graph(), FoldCache()))) == 2


def test_constant_layers_are_not_merged() -> None:
    b = Builder()
    x = constant(b, "x", 3, 4)
    b.output("y", b.concat([layer(b, x, "one"), layer(b, x, "two")], axis=1, name="y"))
    assert [op.kind for op in merge_linears(b.graph()).ops] == ["linear", "linear", "concat"]
