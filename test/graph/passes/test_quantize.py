from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from random_graphs import assert_well_formed, graphs

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.int8 import precision_of
from vla_simd_ros.graph.int8_groups import Int8GroupError
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime
from vla_simd_ros.graph.passes.quantize import mark_int8, quantize

RNG = np.random.default_rng(0)


def layers() -> Graph:
    """Two linear layers of one input in block "encoder.0", merged when compiled, and one in "head"."""
    b = Builder()
    x = b.input("x", (3, 40), DType.F32, Lifetime.QUERY)

    def weight(name: str) -> Array:
        return RNG.normal(size=(40, 40)).astype(np.float32)

    with b.block("encoder.0"):
        q, k = (b.linear(x, b.constant(name, weight(name)), name=name) for name in "qk")
        y = b.attention(q, k, x, heads=4, scale=1.0, name="attention")
    with b.block("head"):
        y = b.linear(y, b.constant("w", weight("w")), name="actions")
    b.output("action", y)
    return b.graph()


def int8_layers(names: tuple[str, ...]) -> list[str]:
    compiled = compile_graph(layers(), FoldCache(), names)
    ops = compiled.programs[Lifetime.QUERY].ops
    return [op.output.name for op in ops if precision_of(op.attrs) == "int8"]


def test_a_merged_layer_is_marked_as_one() -> None:
    assert int8_layers(("encoder",)) == ["encoder.0.q+k"]
    assert int8_layers(("head", "encoder.attention")) == ["encoder.0.q+k", "head.actions"]
    assert int8_layers(("all",)) == ["encoder.0.q+k", "head.actions"]
    assert int8_layers(()) == []


def test_an_unknown_group_is_refused() -> None:
    problem = r"'decoder' is unknown, this policy has: encoder\.attention, head"
    with pytest.raises(Int8GroupError, match=problem):
        compile_graph(layers(), FoldCache(), ("decoder",))


def test_marking_leaves_everything_else() -> None:
    graph = layers()
    (target,) = graph.outputs.values()
    marked = mark_int8(graph.ops, {target})
    assert [a is b for a, b in zip(marked, graph.ops, strict=True)] == [True] * (len(marked) - 1) + [False]
    assert marked[-1].attrs == {"activation": "none", "precision": "int8"}
    assert marked[-1].inputs == graph.ops[-1].inputs


@given(graphs())
@settings(max_examples=40, deadline=None)
def test_marked_graphs_are_well_formed(case: tuple[Graph, dict[str, Array]]) -> None:
    graph = quantize(case[0], ("all",))
    assert_well_formed(graph)
    assert graph.outputs == case[0].outputs
