"""What several passes need: the order of operations, structural keys, a graph with other operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vla_simd_ros.graph.ir import Graph, LazyArray, Op, Tensor

AttrsKey = tuple[tuple[str, Any], ...]


def attrs_key(attrs: Mapping[str, Any]) -> AttrsKey:
    """Attributes as something that can be hashed and compared."""
    return tuple(sorted(attrs.items()))


def with_ops(graph: Graph, ops: Sequence[Op], constants: Mapping[Tensor, LazyArray] | None = None) -> Graph:
    """``graph`` with other operations, and with ``constants`` besides its own."""
    return replace(graph, constants={**graph.constants, **(constants or {})}, ops=list(ops))


def use_counts(graph: Graph) -> dict[Tensor, int]:
    """How often each tensor is read, an output of the graph counting once."""
    counts: dict[Tensor, int] = {}
    for tensor in [*(t for op in graph.ops for t in op.operands()), *graph.outputs.values()]:
        counts[tensor] = counts.get(tensor, 0) + 1
    return counts


def in_order(ops: Iterable[Op]) -> list[Op]:
    """The operations reordered so that each comes after its operands', otherwise as they were."""
    pending = list(ops)
    producer = {op.output: op for op in pending}
    ordered: list[Op] = []
    done: set[Tensor] = set()
    for root in pending:
        stack = [root]
        while stack:
            op = stack[-1]
            missing = [producer[t] for t in op.operands() if t in producer and t not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if op.output not in done:
                done.add(op.output)
                ordered.append(op)
    return ordered
