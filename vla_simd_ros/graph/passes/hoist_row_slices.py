"""Take rows of a constant result instead of computing with rows of a constant.

linear(x[a:b]) becomes linear(x)[a:b] where everything is known at load, and so does the concatenation of such
results. Instructions of different lengths take different rows of one table of positions; what an executor
holds, and computes once, is then the same for all of them.
"""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import with_ops

_RESIDUAL = 3


def hoist_row_slices(graph: Graph) -> Graph:
    """Rewrite constant linear layers and concatenations of columns that read rows of something longer."""
    slices: dict[Tensor, Op] = {}
    ops: list[Op] = []
    for op in graph.ops:
        taken = _taken(op, slices)
        new = [op] if taken is None else _hoist(op, taken, slices)
        ops.extend(new)
        if _is_slice(new[-1]):
            slices[op.output] = new[-1]
    return with_ops(graph, ops)


def _is_slice(op: Op) -> bool:
    """Whether ``op`` takes so many rows of a constant that the others may as well be computed."""
    if op.kind != "slice" or op.attrs["axis"] != 0 or op.output.lifetime is not Lifetime.PROCESS:
        return False
    (source,) = op.operands()
    return 2 * op.output.shape[0] >= source.shape[0]


def _taken(op: Op, slices: dict[Tensor, Op]) -> list[Tensor] | None:
    """The operands whose rows ``op`` computes one by one, if all of them are the same rows of something."""
    if op.output.lifetime is not Lifetime.PROCESS:
        return None
    if op.kind == "linear" and op.inputs[_RESIDUAL] is None:
        operands = [t for t in op.inputs[:1] if t is not None]
    elif op.kind == "concat" and op.attrs["axis"] == 1:
        operands = list(op.operands())
    else:
        return None
    if not all(tensor in slices for tensor in operands):
        return None
    rows = {tuple(slices[tensor].attrs[end] for end in ("start", "stop")) for tensor in operands}
    return operands if len(rows) == 1 else None


def _hoist(op: Op, taken: list[Tensor], slices: dict[Tensor, Op]) -> list[Op]:
    wholes = {tensor: next(iter(slices[tensor].operands())) for tensor in taken}
    if len({tensor.shape[0] for tensor in wholes.values()}) > 1:
        return [op]
    inputs = [tensor if tensor is None else wholes.get(tensor, tensor) for tensor in op.inputs]
    whole = make_op(op.kind, inputs, op.attrs, name=f"{op.output.name}.whole", block=op.block)
    return [whole, Op("slice", (whole.output,), op.output, slices[taken[0]].attrs)]
