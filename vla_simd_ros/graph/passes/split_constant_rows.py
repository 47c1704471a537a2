"""Project the parts of a constant sequence one by one.

linear(concat(a, b)) becomes concat(linear(a), linear(b)) where everything is known at load. The results
are the same; but a part that occurs again, the positions of another camera of the same size, is projected
only once.
"""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import with_ops

_RESIDUAL = 3


def split_constant_rows(graph: Graph) -> Graph:
    """Rewrite every constant linear layer whose input is a concatenation of rows."""
    producers = graph.producers()
    ops: list[Op] = []
    for op in graph.ops:
        source = _concatenation(op, producers)
        ops.extend([op] if source is None else _split(op, source))
    return with_ops(graph, ops)


def _concatenation(op: Op, producers: dict[Tensor, Op]) -> Op | None:
    """What concatenates the rows that a constant linear layer reads, if that is where they come from."""
    if op.kind != "linear" or op.output.lifetime is not Lifetime.PROCESS or op.inputs[_RESIDUAL] is not None:
        return None
    x = op.inputs[0]
    source = producers.get(x) if x is not None else None
    rows = source is not None and source.kind == "concat" and source.attrs["axis"] == 0
    return source if rows else None


def _split(op: Op, source: Op) -> list[Op]:
    parts = [
        make_op(
            "linear", (part, *op.inputs[1:]), op.attrs, name=f"{op.output.name}.part{index}", block=op.block
        )
        for index, part in enumerate(source.inputs)
    ]
    return [*parts, Op("concat", tuple(part.output for part in parts), op.output, {"axis": 0})]
