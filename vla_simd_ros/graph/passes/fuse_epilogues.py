"""Put what follows a linear layer or a convolution into its epilogue.

y = activation(product + bias + residual), then (1 + gamma) * y + beta: an addition, an activation or a
modulation goes into the layer whose result only it reads. A group norm takes an activation.
"""

from __future__ import annotations

from vla_simd_ros.graph.ir import Graph, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.passes.rewriting import use_counts, with_ops
from vla_simd_ros.graph.shapes import is_vector

_FUSABLE = ("linear", "conv2d", "group_norm")
_BIAS, _RESIDUAL, _GAMMA, _BETA = 2, 3, 4, 5


def fuse_epilogues(graph: Graph) -> Graph:
    """Fuse additions, activations and modulations into the layers before them, as far as they go."""
    uses = use_counts(graph)
    ops: dict[Tensor, Op] = {}
    for op in graph.ops:
        for operand in _candidates(op):
            layer = ops.get(operand)
            fused = None if layer is None or uses[operand] > 1 else _fuse(layer, op)
            if fused is not None:
                # The layer moves to where the fused operation was: its other operands are known there.
                del ops[operand]
                ops.update((new.output, new) for new in fused)
                break
        else:
            ops[op.output] = op
    return with_ops(graph, list(ops.values()))


def _candidates(op: Op) -> list[Tensor]:
    """The operands whose producer could take ``op`` into its epilogue."""
    if op.output.lifetime is Lifetime.PROCESS:
        return []
    if op.kind == "binary" and op.attrs["op"] == "add":
        return [tensor for tensor in op.operands() if tensor.shape == op.output.shape]
    return [t for t in op.inputs[:1] if t is not None] if op.kind in ("activation", "film") else []


def _fuse(layer: Op, op: Op) -> list[Op] | None:
    """``layer`` with ``op`` in its epilogue, preceded by what that needs; None if it does not fit."""
    # A layer must not be pulled into a program that runs more often.
    if layer.kind not in _FUSABLE or layer.output.lifetime is not op.output.lifetime:
        return None
    if layer.kind == "group_norm":
        alone = op.kind == "activation" and layer.attrs["activation"] == "none"
        return [_with(layer, op.output, {}, op.attrs["fn"])] if alone else None
    if layer.inputs[_GAMMA] is not None:
        return None
    if op.kind == "film":
        return [_with(layer, op.output, {_GAMMA: op.inputs[1], _BETA: op.inputs[2]})]
    if layer.attrs["activation"] != "none":
        return None
    if op.kind == "activation":
        return [_with(layer, op.output, {}, op.attrs["fn"])]
    a, b = op.inputs
    other = b if a is layer.output else a
    assert other is not None
    if other.shape == layer.output.shape and layer.inputs[_RESIDUAL] is None:
        return [_with(layer, op.output, {_RESIDUAL: other})]
    if other.shape == layer.output.shape or not is_vector(other, op.output.shape[-1]):
        return None
    return _add_vector(layer, op, other)


def _add_vector(layer: Op, op: Op, vector: Tensor) -> list[Op] | None:
    """A vector added to every row: into the bias where it is constant, else a one-row residual."""
    width = layer.output.shape[-1]
    bias = layer.inputs[_BIAS]
    if vector.lifetime is Lifetime.PROCESS and (bias is None or bias.lifetime is Lifetime.PROCESS):
        before, addend = _reshaped(vector, (width,), op)
        if bias is not None:
            name = f"{op.output.name}.bias"
            before.append(make_op("binary", (bias, addend), {"op": "add"}, name=name, block=op.block))
            addend = before[-1].output
        return [*before, _with(layer, op.output, {_BIAS: addend})]
    if layer.kind == "linear" and layer.inputs[_RESIDUAL] is None:
        before, addend = _reshaped(vector, (1, width), op)
        return [*before, _with(layer, op.output, {_RESIDUAL: addend})]
    return None


def _reshaped(vector: Tensor, shape: tuple[int, ...], op: Op) -> tuple[list[Op], Tensor]:
    if vector.shape == shape:
        return [], vector
    name = f"{op.output.name}.vector"
    reshape = make_op("reshape", (vector,), {"shape": shape}, name=name, block=op.block)
    return [reshape], reshape.output


def _with(layer: Op, output: Tensor, inputs: dict[int, Tensor | None], activation: str | None = None) -> Op:
    """``layer`` with some inputs replaced, defining ``output``."""
    operands = tuple(inputs.get(index, tensor) for index, tensor in enumerate(layer.inputs))
    attrs = dict(layer.attrs) if activation is None else {**layer.attrs, "activation": activation}
    return Op(layer.kind, operands, output, attrs)
