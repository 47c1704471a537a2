"""Take a row of a constant result instead of computing with a row of a constant table.

linear(table[ids]) becomes linear(table)[ids] where the table has so few rows that the result takes no more
memory than the layer's weights: what is computed from the time of a solver step is computed for every time
when the checkpoint loads, and the layer's weights are never read again.
"""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import with_ops

_RESIDUAL, _GAMMA = 3, 4


def hoist_embeddings(graph: Graph) -> Graph:
    """Rewrite every activation and constant linear layer of rows that are looked up in a small table."""
    lookups: dict[Tensor, Op] = {}
    ops: list[Op] = []
    for op in graph.ops:
        new = _hoisted(op, lookups)
        ops.extend(new)
        if _is_small_lookup(new[-1]):
            lookups[op.output] = new[-1]
    return with_ops(graph, ops)


def _is_small_lookup(op: Op) -> bool:
    if op.kind != "embedding" or op.output.lifetime is Lifetime.PROCESS:
        return False
    table, _ = op.operands()
    return table.lifetime is Lifetime.PROCESS and table.shape[0] <= table.shape[1]


def _hoisted(op: Op, lookups: dict[Tensor, Op]) -> list[Op]:
    """``op``, or the operations that replace it; the last one defines ``op.output``."""
    x = op.inputs[0] if op.inputs else None
    if x is None or x not in lookups or not _is_row_by_row(op):
        return [op]
    table, ids = lookups[x].operands()
    name, residual = op.output.name, op.inputs[_RESIDUAL] if op.kind == "linear" else None
    constants = op.inputs[1:_RESIDUAL] if op.kind == "linear" else ()
    padding = (None, None, None) if op.kind == "linear" else ()
    of_all = make_op(op.kind, (table, *constants, *padding), op.attrs, name=f"{name}.table", block=op.block)
    if residual is None:
        return [of_all, Op("embedding", (of_all.output, ids), op.output, {})]
    row = make_op("embedding", (of_all.output, ids), {}, name=f"{name}.row", block=op.block)
    return [of_all, row, Op("binary", (row.output, residual), op.output, {"op": "add"})]


def _is_row_by_row(op: Op) -> bool:
    """Whether ``op`` computes each row from the row before it and constants, but for what it adds to it."""
    if op.kind == "activation":
        return True
    if op.kind != "linear" or op.inputs[_GAMMA] is not None:
        return False
    if op.inputs[_RESIDUAL] is not None and op.attrs["activation"] != "none":
        return False
    return all(t is None or t.lifetime is Lifetime.PROCESS for t in op.inputs[1:_RESIDUAL])
