"""Stored modules in a graph: what has a ``weight``, a ``bias`` or both under one name."""

from __future__ import annotations

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.weights import Weights


def linear(
    b: Builder,
    x: Tensor,
    weights: Weights,
    module: str,
    outputs: int,
    *,
    name: str,
    bias: bool = True,
    scale: Tensor | None = None,
) -> Tensor:
    """The linear layer ``module`` of ``x`` [M, K]; ``scale`` [outputs] multiplies what comes out of it.

    The scale goes into the constants, where it costs nothing once the checkpoint is loaded.
    """
    weight = weights.constant(b, f"{module}.weight", outputs, x.shape[1])
    offset = weights.constant(b, f"{module}.bias", outputs) if bias else None
    if scale is not None:
        rows = b.reshape(scale, (outputs, 1), name=f"{name}.scale")
        weight = b.binary("mul", weight, rows, name=f"{name}.weight")
        offset = None if offset is None else b.binary("mul", offset, scale, name=f"{name}.bias")
    return b.linear(x, weight, offset, name=name)


def layer_norm(b: Builder, x: Tensor, weights: Weights, module: str, *, eps: float, name: str) -> Tensor:
    """The layer norm ``module`` of each row."""
    width = x.shape[-1]
    weight = weights.constant(b, f"{module}.weight", width)
    return b.layer_norm(x, weight, weights.constant(b, f"{module}.bias", width), eps=eps, name=name)
