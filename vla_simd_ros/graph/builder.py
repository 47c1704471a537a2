"""Writing a graph down, one operation at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import Array, DType, Graph, KeyValueState, LazyArray, Lifetime, Tensor
from vla_simd_ros.graph.lazy_array import given
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.graph.window import Padding, Stride, window_attrs


class Builder:
    """Collects a :class:`Graph`.

    Each method adds one operation and returns its result. A tensor is named after the current block and
    the ``name`` given ("encoder.0.self_attn.q"); names must be unique. Every method raises
    :class:`GraphError`, naming the operation, its operands, their shapes and what was expected.
    """

    def __init__(self) -> None:
        self._graph = Graph()
        self._block = ""
        self._names: set[str] = set()
        self._constants: dict[LazyArray, Tensor] = {}

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """The block that operations added inside belong to."""
        outer, self._block = self._block, name
        try:
            yield
        finally:
            self._block = outer

    def input(self, name: str, shape: Sequence[int], dtype: DType, lifetime: Lifetime) -> Tensor:
        """A value set from outside, anew in every period of ``lifetime``."""
        if lifetime is Lifetime.PROCESS:
            raise GraphError(f"input '{name}' has lifetime PROCESS, expected EPISODE, QUERY or STEP")
        tensor = Tensor(self._unique(name), tuple(shape), dtype, lifetime, self._block)
        self._graph.inputs[name] = tensor
        return tensor

    def constant(self, name: str, value: Array | LazyArray) -> Tensor:
        """A value known at load: float32, int32 or uint8. The same array object gives the same tensor."""
        value = value if isinstance(value, LazyArray) else given(value)
        known = self._constants.get(value)
        if known is not None:
            return known
        try:
            dtype = DType(value.dtype.name)
        except ValueError:
            kinds = ", ".join(kind.value for kind in DType)
            raise GraphError(f"constant '{name}' is {value.dtype.name}, expected one of {kinds}") from None
        tensor = Tensor(self._unique(name), value.shape, dtype, Lifetime.PROCESS, self._block)
        self._graph.constants[tensor] = value
        self._constants[value] = tensor
        return tensor

    def state(self, name: str, state: KeyValueState) -> Tensor:
        """Keys and values that outlive the runs of all programs; see :mod:`vla_simd_ros.graph.state`."""
        tensor = Tensor(self._unique(name), state.shape, DType.F32, Lifetime.EPISODE, self._block)
        self._graph.states[tensor] = state
        return tensor

    def output(self, name: str, tensor: Tensor) -> None:
        """Declare ``tensor`` a result of the graph."""
        if name in self._graph.outputs:
            raise GraphError(f"output '{name}' is declared twice")
        self._graph.outputs[name] = tensor

    def graph(self) -> Graph:
        """The graph written so far."""
        if not self._graph.outputs:
            raise GraphError("the graph has no output")
        return self._graph

    def normalize_image(self, x: Tensor, offset: Tensor, divisor: Tensor, *, name: str) -> Tensor:
        """(x / 255 - offset) / divisor, for uint8 ``x`` [H, W, C] and one offset and divisor a channel."""
        return self._add("normalize_image", (x, offset, divisor), name)

    def embedding(self, table: Tensor, ids: Tensor, *, name: str) -> Tensor:
        """Rows of ``table`` [V, D] at ``ids`` [n]; either may be a constant, given or computed."""
        return self._add("embedding", (table, ids), name)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, name: str) -> Tensor:
        """x [M, K] times weight [N, K] transposed, plus bias [N]."""
        return self._add("linear", (x, weight, bias, None, None, None), name, activation="none")

    def conv2d(
        self,
        x: Tensor,
        weight: Tensor,
        *,
        name: str,
        stride: Stride = 1,
        padding: Padding = 0,
        dilation: int = 1,
    ) -> Tensor:
        """Convolution of an image [H, W, Cin] with filters [Cout, kh, kw, Cin], without bias.

        ``stride`` is a number or (down, right), ``padding`` a number or ((top, bottom), (left, right)).
        """
        try:
            attrs = window_attrs(stride, padding, dilation)
        except GraphError as error:
            raise GraphError(f"conv2d '{self._full_name(name)}': {error}") from None
        return self._add("conv2d", (x, weight, None, None, None, None), name, **attrs, activation="none")

    def batch_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, eps: float, name: str
    ) -> Tensor:
        """Batch norm over the last axis with frozen statistics."""
        return self._add("batch_norm", (x, weight, bias, mean, var), name, eps=eps)

    def film(self, x: Tensor, gamma: Tensor, beta: Tensor, *, name: str) -> Tensor:
        """(1 + gamma) * x + beta over the last axis."""
        return self._add("film", (x, gamma, beta), name)

    def max_pool2d(self, x: Tensor, *, kernel: int, stride: int, padding: int, name: str) -> Tensor:
        """Maximum over square windows of an image [H, W, C]; padding never wins."""
        return self._add("max_pool2d", (x,), name, kernel=kernel, stride=stride, padding=padding)

    def binary(self, op: str, a: Tensor, b: Tensor, *, name: str) -> Tensor:
        """``op`` (add, sub, mul, div, min or max) element by element.

        A vector ``b`` [C] or [1, C] is used for each row of ``a``, one value [1] for all of it, and
        [..., 1] has one value for each row.
        """
        return self._add("binary", (a, b), name, op=op)

    def add(self, a: Tensor, b: Tensor, *, name: str) -> Tensor:
        """a + b."""
        return self.binary("add", a, b, name=name)

    def activation(self, fn: str, x: Tensor, *, name: str) -> Tensor:
        """relu, gelu (exact), gelu_tanh, silu, tanh, mish, sigmoid or exp."""
        return self._add("activation", (x,), name, fn=fn)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, *, eps: float, name: str) -> Tensor:
        """Layer norm of each row."""
        return self._add("layer_norm", (x, weight, bias), name, eps=eps)

    def rms_norm(self, x: Tensor, weight: Tensor, *, eps: float, name: str) -> Tensor:
        """Root-mean-square norm of each row."""
        return self._add("rms_norm", (x, weight), name, eps=eps)

    def group_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, *, groups: int, eps: float, name: str
    ) -> Tensor:
        """Norm of each group of channels over all rows of [M, C] or pixels of [H, W, C], biased variance."""
        attrs = {"groups": groups, "eps": eps, "activation": "none"}
        return self._add("group_norm", (x, weight, bias), name, **attrs)

    def softmax(self, x: Tensor, *, name: str) -> Tensor:
        """Softmax of each row of ``x`` [M, N]."""
        return self._add("softmax", (x,), name)

    def rotary(
        self, x: Tensor, cos: Tensor, sin: Tensor, *, heads: int, name: str, interleaved: bool = False
    ) -> Tensor:
        """Rotary positions: the halves a, b of each head of ``x`` [M, heads * d] become a cos - b sin and
        b cos + a sin, with ``cos`` and ``sin`` [M, d / 2]. ``interleaved``: a are the even columns of a
        head, b the odd ones."""
        return self._add("rotary", (x, cos, sin), name, heads=heads, interleaved=interleaved)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None = None,
        *,
        heads: int,
        kv_heads: int | None = None,
        scale: float,
        name: str,
    ) -> Tensor:
        """softmax(scale * q k^T + bias) v for each head.

        ``bias`` is [heads, queries, keys], or [1, queries, keys] for all heads. It may be -inf, but not for
        all keys of a query.
        """
        attrs = {"heads": heads, "kv_heads": heads if kv_heads is None else kv_heads, "scale": scale}
        return self._add("attention", (q, k, v, bias), name, **attrs)

    def append(self, state: Tensor, keys: Tensor, values: Tensor, positions: Tensor, *, name: str) -> Tensor:
        """``state`` with row i of ``keys`` and ``values`` [M, kv_heads * d] at ``positions[i]``, int32 [M].

        It takes the place of ``state``, which is not to be read any more.
        """
        return self._add("append", (state, keys, values, positions), name)

    def cached_attention(
        self,
        q: Tensor,
        state: Tensor,
        positions: Tensor,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        name: str,
    ) -> Tensor:
        """Attention of row i of ``q`` [M, heads * d] to the rows of ``state`` up to ``positions[i]``."""
        attrs = {"heads": heads, "kv_heads": kv_heads, "scale": scale}
        return self._add("cached_attention", (q, state, positions), name, **attrs)

    def mean_rows(self, x: Tensor, *, name: str) -> Tensor:
        """Mean over rows, [1, C]."""
        return self._add("mean_rows", (x,), name)

    def concat(self, parts: Sequence[Tensor], *, axis: int, name: str) -> Tensor:
        """The parts one after the other along ``axis``; a single part is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        return self._add("concat", tuple(parts), name, axis=axis)

    def slice(self, x: Tensor, *, axis: int, start: int, stop: int, name: str) -> Tensor:
        """The part ``start:stop`` along ``axis``; the whole is returned as it is."""
        if 0 <= axis < len(x.shape) and (start, stop) == (0, x.shape[axis]):
            return x
        return self._add("slice", (x,), name, axis=axis, start=start, stop=stop)

    def reshape(self, x: Tensor, shape: Sequence[int], *, name: str) -> Tensor:
        """The same elements in the same order under another shape."""
        return self._add("reshape", (x,), name, shape=tuple(shape))

    def transpose(self, x: Tensor, axes: Sequence[int], *, name: str) -> Tensor:
        """``x`` of two or three axes with these axes in this order; the order it has returns it as it is."""
        if tuple(axes) == tuple(range(len(x.shape))):
            return x
        return self._add("transpose", (x,), name, axes=tuple(axes))

    def resize(self, x: Tensor, height: int, width: int, *, name: str) -> Tensor:
        """An image [H, W, C] in another size, bilinear between the centres of pixels, not smoothed before."""
        if (height, width) == x.shape[:2]:
            return x
        return self._add("resize", (x,), name, height=height, width=width)

    def resample(self, x: Tensor, first: Tensor, weights: Tensor, *, axis: int, name: str) -> Tensor:
        """An image [H, W, C] of uint8 with other pixels along ``axis``, 0 (down) or 1.

        Place r is the sum of the pixels from ``first[r]`` on, int32 [n], times row r of ``weights``, int32
        [n, taps], over 2^22, rounded and brought into 0 to 255: integers throughout, as libraries of 8-bit
        images compute.
        """
        return self._add("resample", (x, first, weights), name, axis=axis)

    def _add(self, kind: str, inputs: Sequence[Tensor | None], name: str, **attrs: Any) -> Tensor:
        full_name = self._unique(self._full_name(name))
        op = make_op(kind, inputs, attrs, name=full_name, block=self._block)
        self._graph.ops.append(op)
        return op.output

    def _full_name(self, name: str) -> str:
        return f"{self._block}.{name}" if self._block else name

    def _unique(self, name: str) -> str:
        if name in self._names:
            raise GraphError(f"the name '{name}' is used twice")
        self._names.add(name)
        return name
