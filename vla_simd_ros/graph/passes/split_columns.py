"""Compute with the columns of a concatenation that live longer as seldom as they change.

linear(concat(a, b)) becomes linear(a) + linear(b), each with its columns of the weight, where b outlives a:
the part of a modulation that depends on the observation is computed once for all solver steps. An activation
in between is one of each part.
"""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import Any

from vla_simd_ros.graph.ir import Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import with_ops

_RESIDUAL = 3
_ROWS = 2

Parts = tuple[Tensor, ...]


def split_columns(graph: Graph) -> Graph:
    """Rewrite every activation and linear layer of columns with different lifetimes."""
    parts: dict[Tensor, Parts] = {}
    ops: list[Op] = []
    for op in graph.ops:
        new = _rewritten(op, parts)
        ops.extend(new)
        if _joins_lifetimes(new[-1]):
            parts[op.output] = tuple(new[-1].operands())
    return with_ops(graph, ops)


def _rewritten(op: Op, parts: dict[Tensor, Parts]) -> list[Op]:
    """``op``, or the operations that replace it; the last one defines ``op.output``."""
    if _joins_lifetimes(op):
        return _grouped(op)
    x = op.inputs[0] if op.inputs else None
    if x is None or x not in parts:
        return [op]
    if op.kind == "activation":
        activated = [
            make_op("activation", (part,), op.attrs, name=f"{op.output.name}({part.name})", block=op.block)
            for part in parts[x]
        ]
        return [*activated, Op("concat", tuple(new.output for new in activated), op.output, {"axis": 1})]
    weight = op.inputs[1] if op.kind == "linear" else None
    if weight is None or weight.lifetime is not Lifetime.PROCESS or op.inputs[_RESIDUAL] is not None:
        return [op]
    return _split(op, parts[x], weight)


def _joins_lifetimes(op: Op) -> bool:
    """Whether ``op`` puts columns beside each other that do not live equally long."""
    if op.kind != "concat" or op.attrs["axis"] != 1 or len(op.output.shape) != _ROWS:
        return False
    return len({tensor.lifetime for tensor in op.operands()}) > 1


def _grouped(op: Op) -> list[Op]:
    """The concatenation with neighbours of one lifetime put together first."""
    before: list[Op] = []
    joined: list[Tensor] = []
    for index, (_, tensors) in enumerate(groupby(op.operands(), key=lambda tensor: tensor.lifetime)):
        first, *others = tensors
        if others:
            name = f"{op.output.name}.part{index}"
            before.append(make_op("concat", (first, *others), {"axis": 1}, name=name, block=op.block))
            first = before[-1].output
        joined.append(first)
    return [*before, Op("concat", tuple(joined), op.output, op.attrs)]


def _split(op: Op, parts: Parts, weight: Tensor) -> list[Op]:
    """One layer for each part, the longest-lived first; each is the residual of the next."""
    stops = list(accumulate(part.shape[1] for part in parts))
    columns = [(part, stop - part.shape[1], stop) for part, stop in zip(parts, stops, strict=True)]
    columns.sort(key=lambda column: column[0].lifetime)
    _, _, bias, residual, gamma, beta = op.inputs
    ops: list[Op] = []
    for number, (part, start, stop) in enumerate(columns, start=1):
        name = f"{op.output.name}({part.name})"
        attrs: dict[str, Any] = {"axis": 1, "start": start, "stop": stop}
        ops.append(make_op("slice", (weight,), attrs, name=f"{name}.weight", block=op.block))
        inputs = part, ops[-1].output, bias, residual
        if number == len(columns):
            ops.append(Op("linear", (*inputs, gamma, beta), op.output, op.attrs))
            continue
        attrs = {"activation": "none"}
        ops.append(make_op("linear", (*inputs, None, None), attrs, name=name, block=op.block))
        bias, residual = None, ops[-1].output
    return ops
