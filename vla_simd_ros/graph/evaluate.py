"""The meaning of every operation, in numpy: what constant folding and the reference executor compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.graph.elementwise import ACTIVATIONS, BINARY
from vla_simd_ros.graph.images import convolve, max_pool, resample, resize_bilinear
from vla_simd_ros.graph.int8 import INT8, precision_of, quantize, quantize_weight
from vla_simd_ros.graph.ir import Array, DType, Op
from vla_simd_ros.graph.state import check_appended, check_range
from vla_simd_ros.graph.window import Window

Values = Sequence["Array | None"]
Attrs = Mapping[str, Any]


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
    check_range("index", ids, len(table), "table")
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
        product = convolve(x_q, w_q, Window.of(attrs)).astype(x.dtype) * (x_scale * w_scale.reshape(-1))
    else:
        product = convolve(x, weight, Window.of(attrs))
    return _epilogue(product, epilogue, attrs["activation"])


def _epilogue(y: Array, operands: Sequence[Any], activation: str) -> Array:
    bias, residual, gamma, beta = operands
    if bias is not None:
        y = y + bias
    if residual is not None:
        y = y + residual
    y = _activated(y, activation)
    return y if gamma is None else _film((y, gamma, beta), {})


def _activated(y: Array, activation: str) -> Array:
    return y if activation == "none" else ACTIVATIONS[activation](y)


def _batch_norm(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight, bias, mean, var = inputs
    return np.asarray((x - mean) / np.sqrt(var + attrs["eps"]) * weight + bias)


def _film(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, gamma, beta = inputs
    return np.asarray((1 + gamma.reshape(-1)) * x + beta.reshape(-1))


def _max_pool2d(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return max_pool(inputs[0], attrs["kernel"], attrs["stride"], attrs["padding"])


def _resize(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return resize_bilinear(inputs[0], attrs["height"], attrs["width"])


def _resample(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, first, weights = inputs
    return resample(x, first, weights, attrs["axis"])


def _binary(inputs: Sequence[Any], attrs: Attrs) -> Array:
    a, b = inputs
    # What has neither the shape of a nor one value for each row is one row.
    b = b if b.shape in (a.shape, (*a.shape[:-1], 1)) else b.reshape(-1)
    return np.asarray(BINARY[attrs["op"]](a, b))


def _activation(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(ACTIVATIONS[attrs["fn"]](inputs[0]))


def _layer_norm(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight, bias = inputs
    centred = x - x.mean(axis=1, keepdims=True)
    variance = np.mean(centred * centred, axis=1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + attrs["eps"]) * weight + bias)


def _rms_norm(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight = inputs
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + attrs["eps"]) * weight)


def _group_norm(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, weight, bias = inputs
    groups = x.reshape(-1, attrs["groups"], x.shape[-1] // attrs["groups"])
    centred = groups - groups.mean(axis=(0, 2), keepdims=True)
    variance = np.mean(centred * centred, axis=(0, 2), keepdims=True)
    y = (centred / np.sqrt(variance + attrs["eps"])).reshape(x.shape) * weight + bias
    return _activated(y, attrs["activation"])


def _softmax(inputs: Sequence[Any], attrs: Attrs) -> Array:
    weights = np.exp(inputs[0] - inputs[0].max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _rotary(inputs: Sequence[Any], attrs: Attrs) -> Array:
    x, cos, sin = inputs
    heads = x.reshape(x.shape[0], attrs["heads"], -1)
    half = heads.shape[-1] // 2
    a, b = (heads[..., 0::2], heads[..., 1::2]) if attrs["interleaved"] else np.split(heads, [half], axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    turned = np.stack((a * cos - b * sin, b * cos + a * sin), axis=-1 if attrs["interleaved"] else -2)
    return np.asarray(turned.reshape(x.shape))


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
            scores = scores + bias[head % bias.shape[0]]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        result[:, columns] = (weights @ v[:, shared]) / weights.sum(axis=1, keepdims=True)
    return result


def _append(inputs: Sequence[Any], attrs: Attrs) -> Array:
    state, keys, values, positions = inputs
    check_appended(positions, len(state))
    result: Array = state.copy()
    result[positions] = np.concatenate((keys, values), axis=1)
    return result


def _cached_attention(inputs: Sequence[Any], attrs: Attrs) -> Array:
    q, state, positions = inputs
    check_range("position", positions, len(state), "state")
    keys, values = np.split(state, 2, axis=1)
    rows = [
        _attention((q[i : i + 1], keys[: last + 1], values[: last + 1], None), attrs)
        for i, last in enumerate(positions)
    ]
    return np.concatenate(rows)


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


def _transpose(inputs: Sequence[Any], attrs: Attrs) -> Array:
    return np.asarray(inputs[0].transpose(attrs["axes"]))


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
    "group_norm": _group_norm,
    "softmax": _softmax,
    "rotary": _rotary,
    "attention": _attention,
    "append": _append,
    "cached_attention": _cached_attention,
    "mean_rows": _mean_rows,
    "concat": _concat,
    "slice": _slice,
    "reshape": _reshape,
    "transpose": _transpose,
    "resize": _resize,
    "resample": _resample,
}
