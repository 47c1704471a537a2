"""The meaning of every operation, in numpy: what constant folding and the reference executor compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.graph.int8 import INT8, precision_of, quantize, quantize_weight
from vla_simd_ros.graph.ir import Array, DType, Op
from vla_simd_ros.graph.shapes import conv_output

Values = Sequence["Array | None"]
Attrs = Mapping[str, Any]

_PATCH_BYTES = 32 << 20


def evaluate(op: Op, values: Values, dtype: npt.DTypeLike = np.float64) -> Array:
    """The result of ``op`` for the given operand values.

    Floating-point operands are converted to ``dtype``, in which everything is computed; the result of
    an operation on integers keeps its type.
    """
    operands: list[Any] = [
        None if v is None else v.astype(dtype, copy=False) if v.dtype.kind == "f" else v for v in values
    ]
    result = _OPERATIONS[op.kind](operands, op.attrs)
    return np.asarray(result, dtype) if op.output.dtype is DType.F32 else result


def _normalize_image(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, offset, divisor = inputs
    return np.asarray((x / offset.dtype.type(255) - offset) / divisor)


def _embedding(inputs: Sequence[Any], attrs: Attrs) -> Array:
    table, ids = inputs
    return np.asarray(table[ids])


def _linear(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight, *epilogue = inputs
    if precision_of(attrs) == INT8:
        (x_q, x_scale), (w_q, w_scale) = quantize(x, (1,)), quantize_weight(weight)
        product = (x_q @ w_q.T).astype(x.dtype) * (x_scale * w_scale.reshape(-1))
    else:
        product = x @ weight.T
    return _epilogue(product, epilogue, attrs["activation"])


def _conv2d(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight, *epilogue = inputs
    if precision_of(attrs) == INT8:
        (x_q, x_scale), (w_q, w_scale) = quantize(x, (0, 1, 2)), quantize_weight(weight)
        product = _convolve(x_q, w_q, attrs).astype(x.dtype) * (x_scale * w_scale.reshape(-1))
    else:
        product = _convolve(x, weight, attrs)
    return _epilogue(product, epilogue, attrs["activation"])


def _convolve(x: Array, weight: Array, attrs: Attrs) -> Array:
    out_channels, kernel_h, kernel_w, channels = weight.shape
    stride, padding, dilation = attrs["stride"], attrs["padding"], attrs["dilation"]
    height = conv_output(x.shape[0], kernel_h, stride, padding, dilation)
    width = conv_output(x.shape[1], kernel_w, stride, padding, dilation)
    padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)))
    flat = np.ascontiguousarray(weight.reshape(out_channels, -1).T)
    product = np.empty((height, width, out_channels), x.dtype)
    block = max(1, _PATCH_BYTES // (width * flat.shape[0] * x.itemsize))
    for row in range(0, height, block):
        rows = min(block, height - row)
        patches = np.empty((rows, width, kernel_h, kernel_w, channels), x.dtype)
        for i in range(kernel_h):
            top = row * stride + i * dilation
            lines = padded[top : top + (rows - 1) * stride + 1 : stride]
            for j in range(kernel_w):
                left = j * dilation
                patches[:, :, i, j] = lines[:, left : left + (width - 1) * stride + 1 : stride]
        product[row : row + rows] = (patches.reshape(rows * width, -1) @ flat).reshape(rows, width, -1)
    return product


def _epilogue(y: Array, operands: Sequence[Any], activation: str) -> Array:
    bias, residual, gamma, beta = operands
    if bias is not None:
        y = y + bias
    if residual is not None:
        y = y + residual
    if activation != "none":
        y = _ACTIVATIONS[activation](y)
    return y if gamma is None else _film((y, gamma, beta), {})


def _batch_norm(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight, bias, mean, var = inputs
    return np.asarray((x - mean) / np.sqrt(var + attrs["eps"]) * weight + bias)


def _film(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, gamma, beta = inputs
    return np.asarray((1 + gamma.reshape(-1)) * x + beta.reshape(-1))


def _max_pool2d(inputs: Sequence[Any], attrs: Attrs) -> Array:
    (x,) = inputs
    kernel, stride, padding = attrs["kernel"], attrs["stride"], attrs["padding"]
    height = conv_output(x.shape[0], kernel, stride, padding)
    width = conv_output(x.shape[1], kernel, stride, padding)
    padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)), constant_values=-np.inf)
    result = np.full((height, width, x.shape[2]), -np.inf, x.dtype)
    for i in range(kernel):
        lines = padded[i : i + (height - 1) * stride + 1 : stride]
        for j in range(kernel):
            np.maximum(result, lines[:, j : j + (width - 1) * stride + 1 : stride], out=result)
    return result


def _binary(inputs: Sequence[Any], attrs: Attrs) -> Array:
    a, b = inputs
    b = b if b.shape == a.shape else b.reshape(-1)
    return np.asarray(_BINARY[attrs["op"]](a, b))


def _activation(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(_ACTIVATIONS[attrs["fn"]](inputs[0]))


def _layer_norm(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight, bias = inputs
    centred = x - x.mean(axis=1, keepdims=True)
    variance = np.mean(centred * centred, axis=1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + attrs["eps"]) * weight + bias)


def _rms_norm(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight = inputs
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + attrs["eps"]) * weight)


def _attention(inputs: Sequence[Any], attrs: Attrs) -> Array:
    q, k, v, bias = inputs
    heads, group = attrs["heads"], attrs["heads"] // attrs["kv_heads"]
    d = q.shape[1] // heads
    result: Array = np.empty_like(q)
    for head in range(heads):
        columns = slice(head * d, (head + 1) * d)
        shared = slice(head // group * d, (head // group + 1) * d)
        scores = q[:, columns] @ k[:, shared].T * q.dtype.type(attrs["scale"])
        if bias is not None:
            scores = scores + bias[head]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        result[:, columns] = (weights @ v[:, shared]) / weights.sum(axis=1, keepdims=True)
    return result


def _mean_rows(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(inputs[0].mean(axis=0, keepdims=True))


def _concat(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(np.concatenate(inputs, axis=attrs["axis"]))


def _slice(inputs: Sequence[Any], attrs: Attrs) -> Array:
    index = [slice(None)] * inputs[0].ndim
    index[attrs["axis"]] = slice(attrs["start"], attrs["stop"])
    return np.asarray(inputs[0][tuple(index)])


def _reshape(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(inputs[0].reshape(attrs["shape"]))


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0))


_erf = np.frompyfunc(math.erf, 1, 1)


def _gelu(x: Array) -> Array:
    erf = _erf(x / x.dtype.type(math.sqrt(2))).astype(x.dtype)
    return np.asarray(x.dtype.type(0.5) * x * (1 + erf))


def _gelu_tanh(x: Array) -> Array:
    inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    return np.asarray(x.dtype.type(0.5) * x * (1 + np.tanh(inner)))


def _silu(x: Array) -> Array:
    # The logistic function through tanh, which does not overflow.
    return np.asarray(x.dtype.type(0.5) * x * (1 + np.tanh(x.dtype.type(0.5) * x)))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": lambda x: np.asarray(np.tanh(x)),
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}
_OPERATIONS: dict[str, Callable[[Sequence[Any], Attrs], Array]] = {
    "normalize_image": _normalize_image,
    "embedding": _embedding,
    "linear": _linear,
    "conv2d": _conv2d,
    "batch_norm": _batch_norm,
    "film": _film,
    "max_pool2d": _max_pool2d,
    "binary": _binary,
    "activation": _activation,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "attention": _attention,
    "mean_rows": _mean_rows,
    "concat": _concat,
    "slice": _slice,
    "reshape": _reshape,
}
