"""Project the parts of a constant sequence one by one.

linear(concat(a, b)) becomes concat(linear(a), linear(b)) where everything is known at load. The results
are the same; but each part can then be folded, and remembered, by itself: when an instruction of another
length changes the text's positions, the cameras' positions are not projected again.
"""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Lifetime, Op
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import with_ops


def split_constant_rows(graph: Graph) -> Graph:
    """Rewrite every constant linear layer whose input is a concatenation of rows."""
    producers = graph.producers()
    ops: list[Op] = []
    for op in graph.ops:
        x = op.inputs[0] if op.kind == "linear" else None
        source = producers.get(x) if x is not None else None
        plain = op.output.lifetime is Lifetime.PROCESS and op.inputs[3] is None
        if plain and source is not None and source.kind == "concat" and source.attrs["axis"] == 0:
            ops.extend(_split(op, source))
        else:
            ops.append(op)
    return with_ops(graph, ops)


def _split(op: Op, source: Op) -> list[Op]:
    parts = [
        make_op(
            "linear", (part, *op.inputs[1:]), op.attrs, name=f"{op.output.name}.part{index}", block=op.block
        )
        for index, part in enumerate(source.inputs)
    ]
    return [*parts, Op("concat", tuple(part.output for part in parts), op.output, {"axis": 0})]
