"""Products of precision "int8" in PyTorch; see :mod:`vla_simd_ros.graph.int8` for what they are.

Integers stand in floating point, in pieces so short that every sum of products is an integer which that type
has: so sums are exact in whatever order a library adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from vla_simd_ros.graph.int8 import LARGEST

_Pair = tuple[int, int] | int

_EXACT_BITS = {torch.float32: 24, torch.float64: 53}
"""All integers up to this power of two are numbers of the type."""


class Int8Weight(NamedTuple):
    """A weight's ``integers``, in the type that products are computed in, and the ``scale`` of each of its
    output channels, which are the first axis of both."""

    integers: torch.Tensor
    scale: torch.Tensor


def int8_weight(weight: torch.Tensor, dtype: torch.dtype) -> Int8Weight:
    """A weight for products of type ``dtype``; it is quantized in single precision whatever that is."""
    integers, scale = _quantize(weight.float(), range(1, weight.dim()))
    return Int8Weight(integers.to(dtype), scale.reshape(-1).to(dtype))


def int8_linear(x: torch.Tensor, weight: Int8Weight) -> torch.Tensor:
    """Rows times the weight, each with a scale of its own."""
    integers, scale = _quantize(x, (1,))
    return _products(integers, weight.integers).to(x.dtype) * (scale * weight.scale)


def int8_conv2d(
    x: torch.Tensor,
    weight: Int8Weight,
    stride: _Pair,
    padding: _Pair,
    dilation: _Pair,
) -> torch.Tensor:
    """An image [1, C, H, W] with one scale. As a product of matrices: a library's convolution may compute
    in other ways, which are not exact."""
    integers, scale = _quantize(x, (1, 2, 3))
    filters, _, *kernel = weight.integers.shape
    columns = F.unfold(integers, kernel, dilation, padding, stride)[0].T
    height, width = (
        (size + 2 * pad - step * (extent - 1) - 1) // walk + 1
        for size, pad, step, extent, walk in zip(
            x.shape[2:], _pair(padding), _pair(dilation), kernel, _pair(stride), strict=True
        )
    )
    sums = _products(columns, weight.integers.reshape(filters, -1))
    y = sums.to(x.dtype) * (scale.reshape(1) * weight.scale)
    return y.T.reshape(1, filters, height, width)


def _pair(value: _Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x W^T of integers. Pieces are added up in double precision."""
    piece = 2 ** _EXACT_BITS[x.dtype] // LARGEST**2
    length = x.shape[1]
    if length <= piece:
        return F.linear(x, weight)
    return sum(
        F.linear(x[:, begin : begin + piece], weight[:, begin : begin + piece]).double()
        for begin in range(0, length, piece)
    )


def _quantize(x: torch.Tensor, axes: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers, and the scales that they share along ``axes``, see
    :func:`vla_simd_ros.graph.int8.quantize`."""
    scale = x.abs().amax(dim=tuple(axes), keepdim=True) / LARGEST
    ratio = torch.where(scale > 0, x / scale, 0)
    return torch.round(ratio).clamp(-LARGEST, LARGEST), scale
