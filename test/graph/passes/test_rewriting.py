from __future__ import annotations

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime
from vla_simd_ros.graph.passes.rewriting import in_order, use_counts


def test_operations_are_put_after_their_operands_and_otherwise_stay() -> None:
    b = Builder()
    x = b.input("x", (1, 2), DType.F32, Lifetime.QUERY)
    first = b.activation("relu", x, name="first")
    second = b.activation("tanh", x, name="second")
    b.output("sum", b.add(first, second, name="sum"))
    b.output("last", b.activation("silu", x, name="last"))
    ops = b.graph().ops
    shuffled = [ops[2], ops[0], ops[3], ops[1]]
    assert [op.output.name for op in in_order(shuffled)] == ["first", "second", "sum", "last"]
    assert in_order(ops) == ops


def test_a_long_chain_needs_no_recursion() -> None:
    b = Builder()
    x = b.input("x", (1, 2), DType.F32, Lifetime.QUERY)
    for index in range(3000):
        x = b.activation("relu", x, name=f"relu{index}")
    b.output("y", x)
    ops = b.graph().ops
    assert in_order(reversed(ops)) == ops


def test_outputs_and_repeated_operands_count_as_uses() -> None:
    b = Builder()
    x = b.input("x", (1, 2), DType.F32, Lifetime.QUERY)
    y = b.add(x, x, name="y")
    b.output("y", y)
    b.output("again", y)
    assert use_counts(b.graph()) == {x: 2, y: 2}
