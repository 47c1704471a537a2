from __future__ import annotations

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.graph.passes.common_subexpressions import eliminate_common_subexpressions


def test_equal_operations_are_computed_once() -> None:
    b = Builder()
    x = b.input("x", (2, 2), DType.F32, Lifetime.QUERY)
    one, two = (b.activation("relu", x, name=name) for name in ("one", "two"))
    other = b.activation("tanh", x, name="other")
    b.output("same", b.add(one, two, name="sum"))
    b.output("two", two)
    b.output("other", other)
    graph = eliminate_common_subexpressions(b.graph())
    assert [op.output.name for op in graph.ops] == ["one", "other", "sum"]
    assert graph.outputs["two"] is one
    assert graph.ops[2].inputs == (one, one)


def test_chains_of_equal_operations_collapse() -> None:
    b = Builder()
    x = b.input("x", (2, 2), DType.F32, Lifetime.QUERY)
    ends = [
        b.activation("tanh", b.activation("relu", x, name=f"{side}1"), name=f"{side}2") for side in ("l", "r")
    ]
    b.output("y", b.add(*ends, name="y"))
    assert len(eliminate_common_subexpressions(b.graph()).ops) == 3
