"""Shape and dtype of an operation's result, and the check that its operands fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Tensor
from vla_simd_ros.graph.window import Window, conv_output

Shape = tuple[int, ...]
Operands = Sequence["Tensor | None"]
Attrs = Mapping[str, Any]

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "mish", "sigmoid", "exp")
BINARY_OPS = ("add", "sub", "mul", "div", "min", "max")


def infer(kind: str, inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    """Shape and dtype of ``kind(inputs; attrs)``; raises :class:`GraphError` with the reason."""
    if kind not in _RULES:
        raise GraphError(f"unknown operation kind '{kind}', expected one of {', '.join(sorted(_RULES))}")
    roles, rule = _RULES[kind]
    if roles is not None:
        _check_presence(roles, inputs)
    return rule(inputs, attrs)


def _check_presence(roles: str, inputs: Operands) -> None:
    names = roles.split()
    if len(inputs) != len(names):
        raise GraphError(f"got {len(inputs)} inputs, expected {len(names)} ({roles})")
    for role, tensor in zip(names, inputs, strict=True):
        if tensor is None and not role.endswith("?"):
            raise GraphError(f"input '{role}' is missing")


def _describe(role: str, tensor: Tensor) -> str:
    return f"{role} '{tensor.name}' is {list(tensor.shape)} {tensor.dtype.value}"


def _expect(ok: bool, expectation: str, **tensors: Tensor | None) -> None:
    if not ok:
        got = ", ".join(_describe(role, t) for role, t in tensors.items() if t is not None)
        raise GraphError(f"{got}; expected {expectation}")


def _expect_float(**tensors: Tensor | None) -> None:
    for role, tensor in tensors.items():
        if tensor is not None:
            _expect(tensor.dtype is DType.F32, f"{role} of float32", **{role: tensor})


def is_vector(tensor: Tensor, width: int) -> bool:
    """Whether ``tensor`` has one value for each of ``width`` columns."""
    return tensor.shape in ((width,), (1, width))


def _check_film(width: int, gamma: Tensor | None, beta: Tensor | None) -> None:
    _expect((gamma is None) == (beta is None), "gamma and beta together", gamma=gamma, beta=beta)
    for role, tensor in (("gamma", gamma), ("beta", beta)):
        if tensor is not None:
            _expect(is_vector(tensor, width), f"{role} [{width}] or [1, {width}]", **{role: tensor})


def _check_activation(attrs: Attrs) -> None:
    activation = attrs.get("activation", "none")
    if activation not in ("none", *ACTIVATIONS):
        raise GraphError(f"activation '{activation}' is unknown, expected none, {', '.join(ACTIVATIONS)}")


def _normalize_image(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, offset, divisor = _present(inputs)
    _expect(len(x.shape) == 3 and x.dtype is DType.U8, "an image [H, W, C] of uint8", x=x)
    channels = x.shape[2]
    fits = offset.shape == (channels,) and divisor.shape == (channels,)
    _expect(fits, f"offset and divisor [{channels}]", x=x, offset=offset, divisor=divisor)
    return x.shape, DType.F32


def _embedding(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    table, ids = _present(inputs)
    _expect_float(table=table)
    _expect(len(table.shape) == 2, "a table [V, D]", table=table)
    _expect(len(ids.shape) == 1 and ids.dtype is DType.I32, "ids [n] of int32", ids=ids)
    return (ids.shape[0], table.shape[1]), DType.F32


def _linear(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, weight, bias, residual, gamma, beta = inputs
    assert x is not None and weight is not None
    _expect_float(x=x, weight=weight, bias=bias, residual=residual)
    fits = len(x.shape) == 2 and len(weight.shape) == 2 and x.shape[1] == weight.shape[1]
    _expect(fits, "x [M, K] and weight [N, K]", x=x, weight=weight)
    rows, width = x.shape[0], weight.shape[0]
    if bias is not None:
        _expect(bias.shape == (width,), f"bias [{width}]", weight=weight, bias=bias)
    if residual is not None:
        fits = residual.shape in ((rows, width), (1, width))
        _expect(fits, f"residual [{rows}, {width}] or [1, {width}]", x=x, residual=residual)
    _check_film(width, gamma, beta)
    _check_activation(attrs)
    return (rows, width), DType.F32


def _conv2d(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, weight, bias, residual, gamma, beta = inputs
    assert x is not None and weight is not None
    _expect_float(x=x, weight=weight, bias=bias, residual=residual)
    fits = len(x.shape) == 3 and len(weight.shape) == 4 and x.shape[2] == weight.shape[3]
    _expect(fits, "x [H, W, Cin] and weight [Cout, kh, kw, Cin]", x=x, weight=weight)
    out_channels, kernel_h, kernel_w, _ = weight.shape
    window = Window.of(attrs)
    height, width = window.out_size((x.shape[0], x.shape[1]), (kernel_h, kernel_w))
    fits = height > 0 and width > 0
    _expect(fits, f"an image no smaller than the kernel (dilation {window.dilation})", x=x, weight=weight)
    shape = (height, width, out_channels)
    if bias is not None:
        _expect(bias.shape == (out_channels,), f"bias [{out_channels}]", weight=weight, bias=bias)
    if residual is not None:
        _expect(residual.shape == shape, f"residual {list(shape)}", x=x, residual=residual)
    _check_film(out_channels, gamma, beta)
    _check_activation(attrs)
    return shape, DType.F32


def _batch_norm(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, weight, bias, mean, var = _present(inputs)
    _expect_float(x=x)
    channels = x.shape[-1]
    for role, tensor in (("weight", weight), ("bias", bias), ("mean", mean), ("var", var)):
        _expect(tensor.shape == (channels,), f"{role} [{channels}]", x=x, **{role: tensor})
    return x.shape, DType.F32


def _film(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, gamma, beta = _present(inputs)
    _expect_float(x=x, gamma=gamma, beta=beta)
    _check_film(x.shape[-1], gamma, beta)
    return x.shape, DType.F32


def _max_pool2d(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    kernel, stride, padding = attrs["kernel"], attrs["stride"], attrs["padding"]
    _expect(len(x.shape) == 3 and x.dtype is DType.F32, "an image [H, W, C] of float32", x=x)
    height = conv_output(x.shape[0], kernel, stride, padding)
    width = conv_output(x.shape[1], kernel, stride, padding)
    _expect(height > 0 and width > 0, f"an image no smaller than the window {kernel}x{kernel}", x=x)
    _expect(2 * padding <= kernel, f"padding of at most half the window {kernel}x{kernel}", x=x)
    return (height, width, x.shape[2]), DType.F32


def _binary(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    a, b = _present(inputs)
    _expect_float(a=a, b=b)
    if attrs["op"] not in BINARY_OPS:
        raise GraphError(f"op '{attrs['op']}' is unknown, expected {', '.join(BINARY_OPS)}")
    column = (*a.shape[:-1], 1)
    fits = a.shape == b.shape or b.size == 1 or b.shape == column or is_vector(b, a.shape[-1])
    width = a.shape[-1]
    _expect(fits, f"b of a's shape, [{width}] or [1, {width}], [1], or {list(column)}", a=a, b=b)
    return a.shape, DType.F32


def _activation(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    _expect_float(x=x)
    if attrs["fn"] not in ACTIVATIONS:
        raise GraphError(f"fn '{attrs['fn']}' is unknown, expected {', '.join(ACTIVATIONS)}")
    return x.shape, DType.F32


def _norm(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, *parameters = _present(inputs)
    _expect_float(x=x)
    _expect(len(x.shape) == 2, "rows [M, C]", x=x)
    for tensor in parameters:
        _expect(tensor.shape == (x.shape[1],), f"parameters [{x.shape[1]}]", x=x, parameter=tensor)
    return x.shape, DType.F32


def _group_norm(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, weight, bias = _present(inputs)
    _expect_float(x=x, weight=weight, bias=bias)
    _expect(len(x.shape) in (2, 3), "rows [M, C] or an image [H, W, C]", x=x)
    _check_activation(attrs)
    channels, groups = x.shape[-1], attrs["groups"]
    if groups < 1 or channels % groups:
        raise GraphError(f"{groups} groups of {channels} channels; expected a number that divides them")
    for role, tensor in (("weight", weight), ("bias", bias)):
        _expect(tensor.shape == (channels,), f"{role} [{channels}]", x=x, **{role: tensor})
    return x.shape, DType.F32


def _softmax(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    _expect_float(x=x)
    _expect(len(x.shape) == 2, "rows [M, N]", x=x)
    return x.shape, DType.F32


def _rotary(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, cos, sin = _present(inputs)
    _expect_float(x=x, cos=cos, sin=sin)
    heads = attrs["heads"]
    fits = heads > 0 and len(x.shape) == 2 and x.shape[1] % (2 * heads) == 0
    _expect(fits, f"x [M, {heads} heads * d] with an even d", x=x)
    shape = (x.shape[0], x.shape[1] // heads // 2)
    _expect(cos.shape == sin.shape == shape, f"cos and sin {list(shape)}", x=x, cos=cos, sin=sin)
    return x.shape, DType.F32


def _attention(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    q, k, v, bias = inputs
    assert q is not None and k is not None and v is not None
    _expect_float(q=q, k=k, v=v, bias=bias)
    heads, kv_heads = attrs["heads"], attrs["kv_heads"]
    _check_heads(heads, kv_heads)
    _expect(len(q.shape) == 2 and q.shape[1] % heads == 0, f"q [M, {heads} heads * d]", q=q)
    width = kv_heads * (q.shape[1] // heads)
    fits = len(k.shape) == 2 and k.shape == v.shape and k.shape[1] == width
    _expect(fits, f"k and v [N, {width}] ({kv_heads} key-value heads)", q=q, k=k, v=v)
    if bias is not None:
        shape = (heads, q.shape[0], k.shape[0])
        shared = (1, *shape[1:])
        _expect(bias.shape in (shape, shared), f"bias {list(shape)} or {list(shared)}", bias=bias)
    return q.shape, DType.F32


def _append(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    state, keys, values, positions = _present(inputs)
    _expect_float(state=state, keys=keys, values=values)
    width = state.shape[1] // 2
    fits = len(keys.shape) == 2 and keys.shape == values.shape and keys.shape[1] == width
    _expect(fits, f"keys and values [M, {width}]", state=state, keys=keys, values=values)
    _expect(keys.shape[0] <= state.shape[0], f"no more than {state.shape[0]} rows", state=state, keys=keys)
    _expect_positions(keys.shape[0], positions)
    return state.shape, DType.F32


def _cached_attention(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    q, state, positions = _present(inputs)
    _expect_float(q=q, state=state)
    heads, kv_heads = attrs["heads"], attrs["kv_heads"]
    _check_heads(heads, kv_heads)
    _expect(len(q.shape) == 2 and q.shape[1] % heads == 0, f"q [M, {heads} heads * d]", q=q)
    width = 2 * kv_heads * (q.shape[1] // heads)
    fits = len(state.shape) == 2 and state.shape[1] == width
    _expect(fits, f"a state [rows, {width}] ({kv_heads} key-value heads)", q=q, state=state)
    _expect_positions(q.shape[0], positions)
    return q.shape, DType.F32


def _expect_positions(rows: int, positions: Tensor) -> None:
    fits = positions.dtype is DType.I32 and positions.shape == (rows,)
    _expect(fits, f"positions [{rows}] of int32", positions=positions)


def _check_heads(heads: int, kv_heads: int) -> None:
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise GraphError(f"{heads} heads over {kv_heads} key-value heads; expected a whole multiple")


def _mean_rows(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    _expect_float(x=x)
    _expect(len(x.shape) == 2 and x.shape[0] > 0, "rows [M, C]", x=x)
    return (1, x.shape[1]), DType.F32


def _concat(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    parts, axis = _present(inputs), attrs["axis"]
    if not parts:
        raise GraphError("got no inputs, expected at least one")
    first = parts[0]
    _expect(0 <= axis < len(first.shape), f"an axis of the input, got {axis}", x=first)
    for part in parts[1:]:
        fits = part.dtype is first.dtype and len(part.shape) == len(first.shape)
        fits = fits and all(i == axis or n == first.shape[i] for i, n in enumerate(part.shape))
        _expect(fits, f"the same dtype and the same shape apart from axis {axis}", first=first, other=part)
    total = sum(part.shape[axis] for part in parts)
    return (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype


def _slice(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    axis, start, stop = attrs["axis"], attrs["start"], attrs["stop"]
    _expect(0 <= axis < len(x.shape), f"an axis of the input, got {axis}", x=x)
    inside = 0 <= start < stop <= x.shape[axis]
    _expect(inside, f"a range within axis {axis}, got {start}:{stop}", x=x)
    return (*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), x.dtype


def _reshape(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    shape = tuple(attrs["shape"])
    size = 1
    for extent in shape:
        size *= extent
    fits = size == x.size and all(extent > 0 for extent in shape)
    _expect(fits, f"a shape of {x.size} elements, got {list(shape)}", x=x)
    return shape, x.dtype


def _transpose(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    axes = tuple(attrs["axes"])
    _expect_float(x=x)
    _expect(len(x.shape) in (2, 3), "two or three axes", x=x)
    fits = sorted(axes) == list(range(len(x.shape)))
    _expect(fits, f"each of its {len(x.shape)} axes once, got axes {list(axes)}", x=x)
    return tuple(x.shape[axis] for axis in axes), x.dtype


def _resize(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    (x,) = _present(inputs)
    height, width = attrs["height"], attrs["width"]
    _expect(len(x.shape) == 3 and x.dtype is DType.F32, "an image [H, W, C] of float32", x=x)
    if height < 1 or width < 1:
        raise GraphError(f"a size of {height}x{width}; expected at least 1x1")
    return (height, width, x.shape[2]), DType.F32


def _resample(inputs: Operands, attrs: Attrs) -> tuple[Shape, DType]:
    x, first, weights = _present(inputs)
    axis = attrs["axis"]
    _expect(len(x.shape) == 3 and x.dtype is DType.U8, "an image [H, W, C] of uint8", x=x)
    if axis not in (0, 1):
        raise GraphError(f"axis is {axis}; expected 0 or 1")
    fits = len(weights.shape) == 2 and first.shape == weights.shape[:1] and weights.shape[1] <= x.shape[axis]
    fits = fits and first.dtype is DType.I32 and weights.dtype is DType.I32
    expected = f"first [n] and weights [n, taps] of int32, with at most {x.shape[axis]} taps"
    _expect(fits, expected, x=x, first=first, weights=weights)
    return (*x.shape[:axis], weights.shape[0], *x.shape[axis + 1 :]), DType.U8


def _present(inputs: Operands) -> list[Tensor]:
    return [tensor for tensor in inputs if tensor is not None]


_Rule = Callable[[Operands, Attrs], tuple[Shape, DType]]
# Each kind's inputs in order (a question mark: may be absent; None: any number), and its rule.
_RULES: dict[str, tuple[str | None, _Rule]] = {
    "normalize_image": ("x offset divisor", _normalize_image),
    "embedding": ("table ids", _embedding),
    "linear": ("x weight bias? residual? gamma? beta?", _linear),
    "conv2d": ("x weight bias? residual? gamma? beta?", _conv2d),
    "batch_norm": ("x weight bias mean var", _batch_norm),
    "film": ("x gamma beta", _film),
    "max_pool2d": ("x", _max_pool2d),
    "binary": ("a b", _binary),
    "activation": ("x", _activation),
    "layer_norm": ("x weight bias", _norm),
    "rms_norm": ("x weight", _norm),
    "group_norm": ("x weight bias", _group_norm),
    "softmax": ("x", _softmax),
    "rotary": ("x cos sin", _rotary),
    "attention": ("q k v bias?", _attention),
    "append": ("state keys values positions", _append),
    "cached_attention": ("q state positions", _cached_attention),
    "mean_rows": ("x", _mean_rows),
    "concat": (None, _concat),
    "slice": ("x", _slice),
    "reshape": ("x", _reshape),
    "transpose": ("x", _transpose),
    "resize": ("x", _resize),
    "resample": ("x first weights", _resample),
}
