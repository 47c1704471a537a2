"""Making an operation: its result's shape, dtype and lifetime follow from its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Op, Tensor, shortest
from vla_simd_ros.graph.shapes import infer


def make_op(
    kind: str, inputs: Sequence[Tensor | None], attrs: Mapping[str, Any], *, name: str, block: str
) -> Op:
    """The operation ``name = kind(inputs; attrs)``.

    Raises :class:`GraphError`, with the operation's name, where the operands do not fit together.
    """
    try:
        shape, dtype = infer(kind, inputs, attrs)
    except GraphError as error:
        raise GraphError(f"{kind} '{name}': {error}") from None
    output = Tensor(name, shape, dtype, shortest(inputs), block)
    return Op(kind, tuple(inputs), output, dict(attrs))
