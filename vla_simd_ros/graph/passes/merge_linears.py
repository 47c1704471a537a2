"""Make one linear layer of those in a block that read the same rows.

Queries and keys become one product. Values, which have no position terms, stay apart from those that have:
a residual that is zero in places would be read all the same. Layers of different blocks are not joined, so
that a program can still be cut between its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vla_simd_ros.graph.ir import Array, DType, Graph, LazyArray, Lifetime, Op, Tensor
from vla_simd_ros.graph.lazy_array import given
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import in_order, with_ops

_BIAS, _RESIDUAL, _GAMMA = 2, 3, 4


def merge_linears(graph: Graph) -> Graph:
    """Merge linear layers that :func:`_alike` does not tell apart; the results become slices of columns."""
    groups: dict[object, list[Op]] = {}
    for op in graph.ops:
        if _mergeable(op):
            groups.setdefault(_alike(op), []).append(op)
    merged: dict[Tensor, list[Op]] = {}
    constants: dict[Tensor, LazyArray] = {}
    for group in groups.values():
        if len(group) > 1:
            merged.update({op.output: [] for op in group})
            merged[group[0].output] = _merge(group, constants)
    ops = [new for op in graph.ops for new in merged.get(op.output, [op])]
    return with_ops(graph, in_order(ops), constants)


def _mergeable(op: Op) -> bool:
    """A linear layer whose parameters are constants; joining others would cost time at run time."""
    if op.kind != "linear" or op.output.lifetime is Lifetime.PROCESS or op.inputs[_GAMMA] is not None:
        return False
    return all(t is None or t.lifetime is Lifetime.PROCESS for t in op.inputs[1:])


def _alike(op: Op) -> tuple[object, ...]:
    """What layers must share to be merged."""
    residual = op.inputs[_RESIDUAL]
    rows = None if residual is None else residual.shape[0]
    return op.inputs[0], op.attrs["activation"], op.output.lifetime, op.block, rows


def _merge(group: Sequence[Op], constants: dict[Tensor, LazyArray]) -> list[Op]:
    """The merged layer, what it needs, and the slices that define the group's results."""
    first = group[0]
    name, block = _name([op.output.name for op in group]), first.block
    before = [
        make_op("concat", [op.inputs[1] for op in group], {"axis": 0}, name=f"{name}.weight", block=block),
        *_joined(group, _BIAS, 0, f"{name}.bias", constants),
    ]
    bias = before[-1].output if len(before) > 1 else None
    residual_ops = _joined(group, _RESIDUAL, 1, f"{name}.residual", constants)
    residual = residual_ops[-1].output if residual_ops else None
    inputs = (first.inputs[0], before[0].output, bias, residual, None, None)
    layer = make_op("linear", inputs, first.attrs, name=name, block=block)
    return [*before, *residual_ops, layer, *_slices(group, layer.output)]


def _joined(
    group: Sequence[Op], index: int, axis: int, name: str, constants: dict[Tensor, LazyArray]
) -> list[Op]:
    """The concatenation of one optional operand over the group, zero where absent; nothing if all are."""
    if all(op.inputs[index] is None for op in group):
        return []
    parts: list[Tensor] = []
    for number, op in enumerate(group):
        part = op.inputs[index]
        if part is None:
            value = given(_zeros(op.output.shape[1]))
            part = Tensor(f"{name}.zero{number}", value.shape, DType.F32, Lifetime.PROCESS, op.block)
            constants[part] = value
        parts.append(part)
    return [make_op("concat", parts, {"axis": axis}, name=name, block=group[0].block)]


def _slices(group: Sequence[Op], output: Tensor) -> list[Op]:
    slices = []
    start = 0
    for op in group:
        stop = start + op.output.shape[1]
        slices.append(Op("slice", (output,), op.output, {"axis": 1, "start": start, "stop": stop}))
        start = stop
    return slices


def _name(names: Sequence[str]) -> str:
    """ "decoder.1.q", "decoder.1.k" become "decoder.1.q+k"; names without a common part are shortened."""
    stems = {name.rpartition(".")[0] for name in names}
    if len(stems) == 1:
        return f"{names[0]}+" + "+".join(name.rpartition(".")[2] for name in names[1:])
    return f"{names[0]}..{names[-1]}"


@lru_cache(maxsize=256)
def _zeros(count: int) -> Array:
    """Zeros; the same array for the same count, so that what is folded from it is found again."""
    return np.zeros(count, np.float32)
