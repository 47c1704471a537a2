"""Graphs of one operation, by name, to compare executors with: sizes that fill no vector, one row, and every
way to broadcast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, KeyValueState, Lifetime, Tensor
from vla_simd_ros.graph.programs import CompiledPolicy


class Sample:
    """A builder, and random values for what is asked of it."""

    def __init__(self) -> None:
        self.b = Builder()
        self.rng = np.random.default_rng(7)
        self.inputs: dict[str, Array] = {}

    def given(self, *shape: int) -> Tensor:
        return self.input(self.rng.normal(size=shape).astype(np.float32))

    def input(self, value: Array) -> Tensor:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = value
        return self.b.input(name, value.shape, DType(value.dtype.name), Lifetime.QUERY)

    def constant(self, *shape: int) -> Tensor:
        return self.fixed(self.rng.normal(size=shape).astype(np.float32))

    def fixed(self, value: Array) -> Tensor:
        return self.b.constant(f"c{self.rng.integers(1 << 40)}", value)


def _binary(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> Callable[[Sample], Tensor]:
    return lambda s: s.b.binary(op, s.given(*a), s.given(*b), name="y0")


def _group_norm(groups: int, *shape: int) -> Callable[[Sample], Tensor]:
    def build(s: Sample) -> Tensor:
        parameters = s.constant(shape[-1]), s.constant(shape[-1])
        return s.b.group_norm(s.given(*shape), *parameters, groups=groups, eps=1e-5, name="y0")

    return build


def _rotary(rows: int, heads: int, width: int, interleaved: bool = False) -> Callable[[Sample], Tensor]:
    def build(s: Sample) -> Tensor:
        angles = s.rng.normal(size=(rows, width // 2)).astype(np.float32)
        x, cos, sin = s.given(rows, heads * width), s.fixed(np.cos(angles)), s.input(np.sin(angles))
        return s.b.rotary(x, cos, sin, heads=heads, name="y0", interleaved=interleaved)

    return build


def _cached_attention(rows: int, heads: int, state: KeyValueState) -> Callable[[Sample], Tensor]:
    """The last ``rows`` tokens of a state that was filled in two parts attend to all before them."""

    def build(s: Sample) -> Tensor:
        b, before = s.b, state.rows - rows
        kept = b.state("state", state)
        for name, first, count in (("first", 0, before), ("then", before, rows)):
            wide = b.activation("tanh", s.given(count, 2 * state.width + 3), name=f"{name}.wide")
            keys, values = (
                b.slice(wide, axis=1, start=at, stop=at + state.width, name=f"{name}.{at}")
                for at in (0, 3 + state.width)
            )
            positions = s.input(np.arange(first, first + count, dtype=np.int32))
            kept = b.append(kept, keys, values, positions, name=name)
        q = s.given(rows, heads * state.head)
        attrs = {"heads": heads, "kv_heads": state.kv_heads, "scale": 0.4}
        return b.cached_attention(q, kept, positions, name="y0", **attrs)

    return build


def _masked_attention(queries: int, keys: int, blocked: int) -> Callable[[Sample], Tensor]:
    """Attention to all but the first ``blocked`` keys, with one mask for two heads."""

    def build(s: Sample) -> Tensor:
        mask = s.rng.normal(size=(1, queries, keys)).astype(np.float32)
        mask[:, :, :blocked] = -np.inf
        q, k, v = s.given(queries, 16), s.given(keys, 8), s.given(keys, 8)
        return s.b.attention(q, k, v, s.input(mask), heads=2, kv_heads=1, scale=0.3, name="y0")

    return build


def _convolution(
    image: tuple[int, int, int],
    filters: tuple[int, int, int],
    stride: int | tuple[int, int],
    padding: int | tuple[tuple[int, int], tuple[int, int]],
) -> Callable[[Sample], Tensor]:
    def build(s: Sample) -> Tensor:
        weight = s.constant(*filters, image[2])
        y = s.b.conv2d(s.given(*image), weight, stride=stride, padding=padding, name="product")
        return s.b.add(y, s.constant(filters[0]), name="y0")

    return build


def _resample(height: int, width: int, channels: int, axis: int, places: int) -> Callable[[Sample], Tensor]:
    """Sums of three neighbours, some of them beyond what a byte holds."""

    def build(s: Sample) -> Tensor:
        image = s.input(s.rng.integers(0, 256, (height, width, channels), dtype=np.uint8))
        size = (height, width)[axis]
        first = s.rng.integers(0, size - 2, places).astype(np.int32)
        weights = np.round(s.rng.normal(0.33, 0.2, (places, 3)) * 2**22).astype(np.int32)
        x = s.b.resample(image, s.fixed(first), s.fixed(weights), axis=axis, name="bytes")
        offset, divisor = (s.fixed(np.full(channels, value, np.float32)) for value in (0, 1 / 255))
        return s.b.normalize_image(x, offset, divisor, name="y0")

    return build


def _computed_table(s: Sample) -> Tensor:
    table = s.b.activation("tanh", s.given(5, 13), name="table")
    return s.b.embedding(table, s.fixed(np.array([4, 0, 0, 3, 4, 1], np.int32)), name="y0")


def _activation(fn: str) -> Callable[[Sample], Tensor]:
    values = np.linspace(-30, 30, 77, dtype=np.float32).reshape(7, 11)
    return lambda s: s.b.activation(fn, s.input(values), name="y0")


def _activated_layer(fn: str) -> Callable[[Sample], Tensor]:
    return lambda s: s.b.activation(
        fn, s.b.linear(s.given(5, 13), s.constant(19, 13), s.constant(19), name="product"), name="y0"
    )


def _cropped_and_padded(s: Sample) -> Tensor:
    """A part of an 8-bit image, normalized, with a border of constants."""
    image = s.input(s.rng.integers(0, 256, (6, 9, 3), dtype=np.uint8))
    part = s.b.slice(
        s.b.slice(image, axis=0, start=1, stop=5, name="rows"), axis=1, start=2, stop=7, name="part"
    )
    divisor = s.fixed(np.array([0.3, 0.4, 0.5], np.float32))
    x = s.b.normalize_image(part, s.constant(3), divisor, name="x")
    wide = s.b.concat([s.constant(4, 2, 3), x], axis=1, name="wide")
    return s.b.concat([wide, s.constant(1, 7, 3)], axis=0, name="y0")


def _rows_with_gaps(s: Sample) -> Tensor:
    """Columns of a wider matrix, turned, normalized and laid beside each other."""
    b = s.b
    x = b.activation("tanh", s.given(6, 40), name="wide")
    first, second = (b.slice(x, axis=1, start=at, stop=at + 12, name=f"part{at}") for at in (4, 20))
    turned = b.rotary(first, s.constant(6, 3), s.constant(6, 3), heads=2, name="turned")
    normed = b.group_norm(second, s.constant(12), s.constant(12), groups=4, eps=1e-5, name="normed")
    shares = b.softmax(first, name="shares")
    across = b.transpose(b.transpose(second, (1, 0), name="across"), (1, 0), name="back")
    column = b.slice(x, axis=1, start=39, stop=40, name="column")
    return b.binary("mul", b.concat([turned, normed, shares, across], axis=1, name="all"), column, name="y0")


SAMPLES: dict[str, Callable[[Sample], Tensor]] = {
    "min": _binary("min", (5, 7), (5, 7)),
    "max of a row": _binary("max", (5, 17), (17,)),
    "scalar": _binary("mul", (5, 17), (1,)),
    "scalar on an image": _binary("div", (3, 5, 17), (1,)),
    "column": _binary("sub", (5, 33), (5, 1)),
    "column of one row": _binary("add", (1, 33), (1, 1)),
    "column on an image": _binary("mul", (3, 5, 7), (3, 5, 1)),
    "group norm": _group_norm(3, 7, 33),
    "group norm of one row": _group_norm(2, 1, 10),
    "group norm of an image": _group_norm(8, 5, 6, 24),
    "group norm and activation": lambda s: s.b.activation("mish", _group_norm(3, 7, 33)(s), name="y1"),
    "softmax": lambda s: s.b.softmax(s.given(5, 37), name="y0"),
    "softmax of one column": lambda s: s.b.softmax(s.given(5, 1), name="y0"),
    "rotary": _rotary(7, 3, 10),
    "rotary of one row": _rotary(1, 2, 64),
    "rotary of neighbours": _rotary(5, 3, 10, interleaved=True),
    "cached attention": _cached_attention(5, 6, KeyValueState(40, 2, 20)),
    "cached attention over blocks": _cached_attention(3, 2, KeyValueState(530, 1, 7)),
    "shared mask": _masked_attention(5, 7, 2),
    "mask of whole blocks": _masked_attention(33, 700, 650),
    "transpose": lambda s: s.b.transpose(s.given(19, 37), (1, 0), name="y0"),
    "transpose 021": lambda s: s.b.transpose(s.given(3, 5, 17), (0, 2, 1), name="y0"),
    "transpose 102": lambda s: s.b.transpose(s.given(3, 5, 17), (1, 0, 2), name="y0"),
    "transpose 120": lambda s: s.b.transpose(s.given(3, 5, 17), (1, 2, 0), name="y0"),
    "transpose 201": lambda s: s.b.transpose(s.given(3, 5, 17), (2, 0, 1), name="y0"),
    "transpose 210": lambda s: s.b.transpose(s.given(3, 5, 17), (2, 1, 0), name="y0"),
    "resize up": lambda s: s.b.resize(s.given(5, 7, 9), 13, 15, name="y0"),
    "resize down": lambda s: s.b.resize(s.given(11, 9, 17), 4, 7, name="y0"),
    "resample down": _resample(9, 7, 3, 0, 5),
    "resample across": _resample(6, 11, 3, 1, 13),
    "resample wide lines": _resample(5, 130, 3, 0, 4),
    "resize of one pixel": lambda s: s.b.resize(s.given(1, 1, 3), 2, 3, name="y0"),
    "conv 1x5": _convolution((1, 16, 24), (40, 1, 5), 1, ((0, 0), (2, 2))),
    "conv 1x3 stride 2": _convolution((1, 16, 24), (40, 1, 3), (1, 2), ((0, 0), (1, 1))),
    "conv 3x1": _convolution((9, 7, 5), (6, 3, 1), (2, 1), ((1, 1), (0, 0))),
    "conv padded on one side": _convolution((9, 7, 5), (6, 3, 3), 2, ((0, 1), (0, 1))),
    "conv 2x4": _convolution((9, 7, 5), (6, 2, 4), (1, 3), ((1, 0), (3, 2))),
    "patches": _convolution((12, 8, 3), (20, 4, 4), 4, 0),
    "computed table": _computed_table,
    **{fn: _activation(fn) for fn in ("mish", "sigmoid", "exp")},
    **{f"layer and {fn}": _activated_layer(fn) for fn in ("mish", "sigmoid", "exp")},
    "cropped and padded": _cropped_and_padded,
    "rows with gaps": _rows_with_gaps,
}


def sample_policy(name: str) -> tuple[CompiledPolicy, dict[str, Array]]:
    """The compiled graph of a sample, whose output is "y", and values for its inputs."""
    sample = Sample()
    sample.b.output("y", SAMPLES[name](sample))
    return compile_graph(sample.b.graph(), FoldCache()), sample.inputs
