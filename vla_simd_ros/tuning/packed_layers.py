"""The layers of a policy that a register tile is chosen for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from vla_simd_ros.graph.cost import op_cost
from vla_simd_ros.graph.ir import Op
from vla_simd_ros.tuning.tile_sweep import LinearShape

_LEAST_SHARE = 1e-3
_MEASURED = 6


@dataclass(frozen=True)
class PackedLayers:
    """Output widths of the layers that count, those of the others, and the linear layers with the most work.

    A layer counts unless its width is no multiple of a vector or it does less than a thousandth of the work:
    action heads fill no tile, whatever its size.
    """

    widths: tuple[int, ...]
    left_out: tuple[int, ...]
    shapes: tuple[LinearShape, ...]


def packed_layers(ops: Iterable[Op], lanes: int) -> PackedLayers:
    """The packed layers among a program's operations, for vectors of ``lanes`` values."""
    work: Counter[int] = Counter()
    linear: Counter[LinearShape] = Counter()
    for op in ops:
        if op.kind not in ("linear", "conv2d"):
            continue
        cost = op_cost(op).flops
        work[op.output.shape[-1]] += cost
        if op.kind == "linear":
            rows, depth = next(iter(op.operands())).shape
            linear[LinearShape(rows, depth, op.output.shape[1])] += cost
    least = _LEAST_SHARE * work.total()
    widths = sorted(width for width, cost in work.items() if width % lanes == 0 and cost >= least)
    measured = [shape for shape, _ in linear.most_common() if shape.cols in widths]
    return PackedLayers(
        tuple(widths), tuple(sorted(set(work).difference(widths))), tuple(measured[:_MEASURED])
    )
