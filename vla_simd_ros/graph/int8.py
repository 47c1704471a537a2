"""What a product of precision "int8" computes, in numpy.

Symmetric 8-bit integers: weights with one scale per output channel, known at load; activations with one
scale per row of a linear layer and one per image of a convolution, taken from the values themselves. Sums of
products are exact; the result is the sum times both scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.graph.ir import Array

INT8 = "int8"
FP32 = "fp32"
LARGEST = 127
"""Largest magnitude of a quantized value; -128 is not used."""


def precision_of(attrs: Mapping[str, Any]) -> str:
    """The precision that an operation's attributes ask for."""
    return str(attrs.get("precision", FP32))


def quantize(x: Array, axes: tuple[int, ...]) -> tuple[npt.NDArray[np.float64], Array]:
    """Integers, as float64, and the scales that they share along ``axes``, which are kept with length 1.

    x / scale is rounded half to even, in the precision of ``x``. Where all values are zero, or too small for
    their scale to be a number other than zero, scale and integers are 0.
    """
    largest = np.abs(x).max(axis=axes, keepdims=True, initial=0)
    scale = largest / x.dtype.type(LARGEST)
    ratio = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
    # A scale that is itself too small to be exact would give more than the largest value.
    return np.clip(np.rint(ratio), -LARGEST, LARGEST).astype(np.float64), scale


def quantize_weight(weight: Array) -> tuple[npt.NDArray[np.float64], Array]:
    """Integers and scales of a weight whose first axis are output channels. Weights are float32 however the
    activations are computed, so they are quantized in float32; the scales come in the dtype of ``weight``."""
    integers, scale = quantize(weight.astype(np.float32), tuple(range(1, weight.ndim)))
    return integers, scale.astype(weight.dtype)
