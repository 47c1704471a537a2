"""Functions of single elements, in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vla_simd_ros.graph.ir import Array


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0))


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu(x: Array) -> Array:
    erf = _erf(x / x.dtype.type(math.sqrt(2))).astype(x.dtype)
    return np.asarray(x.dtype.type(0.5) * x * (1 + erf))


def _gelu_tanh(x: Array) -> Array:
    inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    return np.asarray(x.dtype.type(0.5) * x * (1 + np.tanh(inner)))


def _sigmoid(x: Array) -> Array:
    # Through tanh, which does not overflow.
    return np.asarray(x.dtype.type(0.5) * (1 + np.tanh(x.dtype.type(0.5) * x)))


def _silu(x: Array) -> Array:
    return np.asarray(x * _sigmoid(x))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": lambda x: np.asarray(np.tanh(x)),
    "mish": lambda x: np.asarray(x * np.tanh(_softplus(x))),
    "sigmoid": _sigmoid,
    "exp": lambda x: np.asarray(np.exp(x)),
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}
