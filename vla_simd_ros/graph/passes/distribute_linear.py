"""Push the longer-lived part of a sum through a linear layer, so that it is computed as seldom as it changes.

linear(a + b) becomes linear(a) + linear(b), where b outlives a: a position table added to queries and
keys turns into a residual that is computed when the checkpoint loads.
"""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Op, Tensor
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import with_ops
from vla_simd_ros.graph.shapes import is_vector


def distribute_linear(graph: Graph) -> Graph:
    """Rewrite every linear layer over a sum of two tensors of different lifetimes."""
    producers = graph.producers()
    ops: list[Op] = []
    for op in graph.ops:
        ops.extend(_expand(op, producers))
    return with_ops(graph, ops)


def _expand(op: Op, producers: dict[Tensor, Op]) -> list[Op]:
    """``op``, or the operations that replace it; the last one defines ``op.output``."""
    parts = _sum_of_lifetimes(op, producers)
    if parts is None:
        return [op]
    short, long = parts
    _, weight, bias, residual, gamma, beta = op.inputs
    name, block = f"{op.output.name}({long.name})", op.block
    before: list[Op] = []
    if len(long.shape) == 1:
        before.append(
            make_op("reshape", (long,), {"shape": (1, *long.shape)}, name=f"{name}.row", block=block)
        )
        long = before[-1].output
    part = make_op(
        "linear", (long, weight, None, None, None, None), {"activation": "none"}, name=name, block=block
    )
    before.extend(_expand(part, producers))
    addend = part.output
    if residual is not None:
        rows, row = (residual, addend) if residual.shape[0] >= addend.shape[0] else (addend, residual)
        before.append(make_op("binary", (rows, row), {"op": "add"}, name=f"{name}+", block=block))
        addend = before[-1].output
    rest = Op("linear", (short, weight, bias, addend, gamma, beta), op.output, op.attrs)
    return [*before, *_expand(rest, producers)]


def _sum_of_lifetimes(op: Op, producers: dict[Tensor, Op]) -> tuple[Tensor, Tensor] | None:
    """The shorter- and the longer-lived addend of a linear layer's input, if it is such a sum."""
    x = op.inputs[0]
    if op.kind != "linear" or x is None:
        return None
    producer = producers.get(x)
    if producer is None or producer.kind != "binary" or producer.attrs["op"] != "add":
        return None
    a, b = producer.inputs
    assert a is not None and b is not None
    if a.lifetime == b.lifetime:
        return None
    short, long = (a, b) if a.lifetime > b.lifetime else (b, a)
    # A single short-lived row added to many would lose the other rows; what is neither all rows nor one row
    # cannot be projected.
    whole = long.shape == x.shape or is_vector(long, x.shape[1])
    return (short, long) if short.shape == x.shape and whole else None
