"""Compute equal things once."""

from __future__ import annotations

from dataclasses import replace

from vla_simd_ros.graph.ir import Graph, Op, Tensor
from vla_simd_ros.graph.passes.rewriting import attrs_key


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """The graph with one operation for all that have the same kind, operands and attributes."""
    same: dict[Tensor, Tensor] = {}
    seen: dict[object, Tensor] = {}
    ops: list[Op] = []
    for op in graph.ops:
        inputs = tuple(None if t is None else same.get(t, t) for t in op.inputs)
        key = (op.kind, inputs, attrs_key(op.attrs))
        if key in seen:
            same[op.output] = seen[key]
        else:
            seen[key] = op.output
            ops.append(Op(op.kind, inputs, op.output, op.attrs))
    outputs = {name: same.get(tensor, tensor) for name, tensor in graph.outputs.items()}
    return replace(graph, ops=ops, outputs=outputs)
