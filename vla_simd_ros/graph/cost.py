"""What an operation costs: floating-point operations, and bytes that must move at least."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from vla_simd_ros.graph.ir import Op, Tensor

_VIEWS = ("slice", "reshape")
# Per element: mean and variance (3), normalization (3), scale and shift (2); without mean and shift.
_LAYER_NORM, _RMS_NORM = 8, 4
# Per score: scale, maximum, exponential, sum.
_SOFTMAX = 4
# Per element: two products and a sum; between two rows and twice between two pixels, each a weighted sum.
_ROTARY, _RESIZE = 3, 9


@dataclass(frozen=True)
class Cost:
    """A multiply-add counts as two ``flops``; ``bytes`` are each operand read and the result written once."""

    flops: int = 0
    bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


def op_cost(op: Op) -> Cost:
    """The cost of one operation; a view costs nothing."""
    if op.kind in _VIEWS:
        return Cost()
    return Cost(_flops(op), _bytes(op))


def total_cost(ops: Iterable[Op]) -> Cost:
    """The cost of several operations."""
    return sum((op_cost(op) for op in ops), Cost())


def _flops(op: Op) -> int:
    size = op.output.size
    if op.kind in ("linear", "conv2d"):
        weight = _operand(op, 1)
        depth = math.prod(weight.shape[1:])
        return 2 * size * depth + _epilogue_flops(op)
    if op.kind == "attention":
        queries, width = op.output.shape
        keys = _operand(op, 1).shape[0]
        scores = int(op.attrs["heads"]) * queries * keys
        return 4 * queries * keys * width + scores * (_SOFTMAX + (op.inputs[3] is not None))
    if op.kind == "cached_attention":  # to a full state, as nobody knows how far it will be filled
        (queries, width), keys = op.output.shape, _operand(op, 1).shape[0]
        return queries * keys * (4 * width + _SOFTMAX * int(op.attrs["heads"]))
    if op.kind == "append":
        return 0
    if op.kind == "group_norm":
        return size * (_LAYER_NORM + int(op.attrs["activation"] != "none"))
    if op.kind == "max_pool2d":
        return size * (int(op.attrs["kernel"]) ** 2 - 1)
    if op.kind == "mean_rows":
        return _operand(op, 0).size
    if op.kind == "resample":
        return 2 * size * _operand(op, 2).shape[1]
    return size * _PER_ELEMENT[op.kind]


_PER_ELEMENT = {
    "normalize_image": 3,
    "embedding": 0,
    "batch_norm": 2,
    "film": 2,
    "binary": 1,
    "activation": 1,
    "layer_norm": _LAYER_NORM,
    "rms_norm": _RMS_NORM,
    "softmax": _SOFTMAX,
    "rotary": _ROTARY,
    "resize": _RESIZE,
    "concat": 0,
    "transpose": 0,
}


def _epilogue_flops(op: Op) -> int:
    _, _, bias, residual, gamma, _ = op.inputs
    activated = bool(op.attrs["activation"] != "none")
    per_element = (bias is not None) + (residual is not None) + activated + 2 * (gamma is not None)
    return op.output.size * per_element


def _bytes(op: Op) -> int:
    operands = list(dict.fromkeys(op.operands()))
    if op.kind == "append":
        return sum(2 * _operand(op, index).nbytes for index in (1, 2)) + _operand(op, 3).nbytes
    if op.kind == "embedding":
        # Only the rows asked for are read.
        return _operand(op, 1).nbytes + 2 * op.output.nbytes
    return op.output.nbytes + sum(tensor.nbytes for tensor in operands)


def _operand(op: Op, index: int) -> Tensor:
    tensor = op.inputs[index]
    assert tensor is not None
    return tensor
