"""Every operation against its definition, written as plain loops or by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.graph.evaluate import evaluate
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.graph.operation import make_op

RNG = np.random.default_rng(0)
NO_EPILOGUE = (None,) * 4
PLAIN = {"activation": "none"}


def random(*shape: int) -> Array:
    return RNG.normal(size=shape)


def run(kind: str, *values: Array | None, dtype: Any = np.float64, **attrs: Any) -> Array:
    """Evaluate one operation on values, which are given to the graph as float32 where they are floats."""
    types = {"f": DType.F32, "u": DType.U8, "i": DType.I32}
    inputs = [
        None if v is None else Tensor("t", v.shape, types[v.dtype.kind], Lifetime.QUERY, "") for v in values
    ]
    op = make_op(kind, inputs, attrs, name="y", block="")
    result = evaluate(op, values, dtype)
    assert result.shape == op.output.shape
    return result


def test_normalize_image() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 21
    offset, divisor = random(3), np.array([0.5, 2.0, -1.0])
    np.testing.assert_allclose(run("normalize_image", x, offset, divisor), (x / 255 - offset) / divisor)


def test_embedding() -> None:
    table = random(5, 3)
    np.testing.assert_array_equal(run("embedding", table, np.array([4, 0, 4], np.int32)), table[[4, 0, 4]])


def test_linear_with_its_whole_epilogue() -> None:
    x, w, bias, residual, gamma, beta = (random(*s) for s in ((3, 4), (2, 4), (2,), (3, 2), (1, 2), (2,)))
    got = run("linear", x, w, bias, residual, gamma, beta, activation="relu")
    for i in range(3):
        for j in range(2):
            y = max(sum(x[i, k] * w[j, k] for k in range(4)) + bias[j] + residual[i, j], 0)
            assert got[i, j] == pytest.approx((1 + gamma[0, j]) * y + beta[j])


@given(
    size=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
@settings(max_examples=40, deadline=None)
def test_conv2d(size: tuple[int, int], kernel: int, stride: int, padding: int, dilation: int) -> None:
    if min(size) + 2 * padding < dilation * (kernel - 1) + 1:
        return
    x, w = random(*size, 2), random(3, kernel, kernel, 2)
    got = run("conv2d", x, w, *NO_EPILOGUE, stride=stride, padding=padding, dilation=dilation, **PLAIN)
    assert_convolved(got, x, w, (stride, stride), (padding, padding), dilation)


@pytest.mark.parametrize("kernel", [(1, 5), (3, 1), (2, 4)])
@pytest.mark.parametrize("stride", [(1, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("padding", [((0, 0), (2, 2)), ((1, 0), (0, 3))])
def test_conv2d_with_another_window_on_each_axis(
    kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    x, w = random(4, 7, 2), random(3, *kernel, 2)
    got = run("conv2d", x, w, *NO_EPILOGUE, stride=stride, padding=padding, dilation=1, **PLAIN)
    ((top, bottom), (left, right)) = padding
    assert got.shape[:2] == (
        (4 + top + bottom - kernel[0]) // stride[0] + 1,
        (7 + left + right - kernel[1]) // stride[1] + 1,
    )
    assert_convolved(got, x, w, stride, (top, left), 1)


def assert_convolved(
    got: Array, x: Array, w: Array, stride: tuple[int, int], before: tuple[int, int], dilation: int
) -> None:
    for row, column, channel in np.ndindex(*got.shape):
        total = 0.0
        for i, j in np.ndindex(*w.shape[1:3]):
            y = row * stride[0] + i * dilation - before[0]
            z = column * stride[1] + j * dilation - before[1]
            if 0 <= y < x.shape[0] and 0 <= z < x.shape[1]:
                total += float(x[y, z] @ w[channel, i, j])
        assert got[row, column, channel] == pytest.approx(total)


def test_conv2d_in_row_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = random(9, 5, 2), random(3, 3, 3, 2)
    attrs = {"stride": 2, "padding": 1, "dilation": 1, "activation": "none"}
    whole = run("conv2d", x, w, None, None, None, None, **attrs)
    monkeypatch.setattr("vla_simd_ros.graph.images._PATCH_BYTES", 1)
    np.testing.assert_allclose(run("conv2d", x, w, None, None, None, None, **attrs), whole)


def test_batch_norm_film_and_arithmetic() -> None:
    x, w, b, mean = random(2, 3, 4), random(4), random(4), random(4)
    var = np.array([0.1, 1, 2, 3])
    expected = (x - mean) / np.sqrt(var + 1e-5) * w + b
    np.testing.assert_allclose(run("batch_norm", x, w, b, mean, var, eps=1e-5), expected)
    np.testing.assert_allclose(run("film", x, w, b), (1 + w) * x + b)
    y = random(2, 3, 4)
    for op, result in (("add", x + y), ("sub", x - y), ("mul", x * y), ("div", x / y)):
        np.testing.assert_allclose(run("binary", x, y, op=op), result)
    for i in np.ndindex(*x.shape):
        assert run("binary", x, y, op="min")[i] == min(x[i], y[i])
        assert run("binary", x, y, op="max")[i] == max(x[i], y[i])


def test_binary_with_a_row_a_column_or_one_value() -> None:
    x, row, column, one = random(3, 4), random(4), random(3, 1), random(1)
    for i, j in np.ndindex(3, 4):
        assert run("binary", x, row[None], op="sub")[i, j] == x[i, j] - row[j]
        assert run("binary", x, column, op="sub")[i, j] == x[i, j] - column[i, 0]
        assert run("binary", x, one, op="sub")[i, j] == x[i, j] - one[0]
    image, pixels = random(2, 3, 4), random(2, 3, 1)
    for i, j, k in np.ndindex(2, 3, 4):
        assert run("binary", image, pixels, op="mul")[i, j, k] == image[i, j, k] * pixels[i, j, 0]
    np.testing.assert_array_equal(run("binary", row[None], random(1, 1) * 0, op="add"), row[None])


def test_max_pool2d_ignores_padding() -> None:
    x = -1 - np.abs(random(5, 4, 2))
    got = run("max_pool2d", x, kernel=3, stride=2, padding=1)
    for row, column in np.ndindex(3, 2):
        window = x[max(2 * row - 1, 0) : 2 * row + 2, max(2 * column - 1, 0) : 2 * column + 2]
        np.testing.assert_array_equal(got[row, column], window.max(axis=(0, 1)))


@pytest.mark.parametrize(
    ("fn", "definition"),
    [
        ("relu", lambda v: max(v, 0.0)),
        ("gelu", lambda v: v * 0.5 * math.erfc(-v / math.sqrt(2))),
        ("gelu_tanh", lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))),
        ("silu", lambda v: v / (1 + math.exp(-v))),
        ("tanh", math.tanh),
        ("mish", lambda v: v * math.tanh(math.log1p(math.exp(-abs(v))) + max(v, 0.0))),
        ("sigmoid", lambda v: 1 / (1 + math.exp(-v))),
        ("exp", math.exp),
    ],
)
def test_activations(fn: str, definition: Any) -> None:
    x = np.array([[-700.0, -3.0, -0.5, 0.0, 0.5, 3.0, 700.0]])
    expected = [[definition(v) for v in x[0]]]
    np.testing.assert_allclose(run("activation", x, fn=fn), expected, rtol=1e-12, atol=1e-12)


def test_norms() -> None:
    x, w, b = random(3, 5), random(5), random(5)
    for row, layer, rms in zip(
        x, run("layer_norm", x, w, b, eps=1e-5), run("rms_norm", x, w, eps=1e-6), strict=True
    ):
        variance = sum((v - row.mean()) ** 2 for v in row) / 5
        np.testing.assert_allclose(layer, (row - row.mean()) / math.sqrt(variance + 1e-5) * w + b)
        np.testing.assert_allclose(rms, row / math.sqrt(sum(v * v for v in row) / 5 + 1e-6) * w)


@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6)])
def test_group_norm(shape: tuple[int, ...]) -> None:
    x, w, b = random(*shape), random(6), random(6)
    got = run("group_norm", x, w, b, groups=3, eps=1e-5, activation="none").reshape(-1, 6)
    activated = run("group_norm", x, w, b, groups=3, eps=1e-5, activation="relu").reshape(-1, 6)
    np.testing.assert_array_equal(activated, np.maximum(got, 0))
    for group in range(3):
        values = [float(v) for row in x.reshape(-1, 6) for v in row[2 * group : 2 * group + 2]]
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) + 1e-5)
        for c in (2 * group, 2 * group + 1):
            np.testing.assert_allclose(got[:, c], (x.reshape(-1, 6)[:, c] - mean) / deviation * w[c] + b[c])


def test_softmax() -> None:
    x = np.array([[1.0, 2.0, 3.0], [1e4, 0.0, -np.inf]])
    got = run("softmax", x)
    total = sum(math.exp(v) for v in (1, 2, 3))
    np.testing.assert_allclose(got, [[math.exp(v) / total for v in (1, 2, 3)], [1, 0, 0]])


@pytest.mark.parametrize(("interleaved", "stride", "apart"), [(False, 1, 2), (True, 2, 1)])
def test_rotary_turns_pairs_by_their_angle(interleaved: bool, stride: int, apart: int) -> None:
    x, angle = random(3, 8), random(3, 2)
    got = run("rotary", x, np.cos(angle), np.sin(angle), heads=2, interleaved=interleaved)
    for m, h, i in np.ndindex(3, 2, 2):
        first = 4 * h + stride * i
        second = first + apart
        turned = complex(x[m, first], x[m, second]) * complex(math.cos(angle[m, i]), math.sin(angle[m, i]))
        assert complex(got[m, first], got[m, second]) == pytest.approx(turned)


def test_append_puts_rows_at_their_positions() -> None:
    state, keys, values = random(5, 6), random(2, 3), random(2, 3)
    before = state.copy()
    got = run("append", state, keys, values, np.array([1, 4], np.int32))
    np.testing.assert_array_equal(state, before)
    np.testing.assert_array_equal(got[[0, 2, 3]], state[[0, 2, 3]])
    np.testing.assert_array_equal(got[[1, 4]], np.concatenate((keys, values), axis=1))


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([0, 5], "position 5 at place 1 is outside the state of 5 rows"),
        ([-1, 0], "position -1 at place 0 is outside"),
        ([2, 2], "position 2 at place 1 follows 2, expected a larger one"),
    ],
)
def test_append_refuses_positions(positions: list[int], message: str) -> None:
    with pytest.raises(IndexError, match=message):
        run("append", random(5, 6), random(2, 3), random(2, 3), np.array(positions, np.int32))


def test_cached_attention_sees_the_rows_up_to_its_position() -> None:
    heads, kv_heads, d = 4, 2, 3
    q, state, positions = random(3, heads * d), random(6, 2 * kv_heads * d), np.array([0, 2, 4], np.int32)
    state[5] = np.nan
    got = run("cached_attention", q, state, positions, heads=heads, kv_heads=kv_heads, scale=0.7)
    for i, h in np.ndindex(3, heads):
        keys = state[: positions[i] + 1, h // 2 * d :][:, :d]
        values = state[: positions[i] + 1, kv_heads * d + h // 2 * d :][:, :d]
        weights = np.exp(0.7 * keys @ q[i, h * d : (h + 1) * d])
        np.testing.assert_allclose(got[i, h * d : (h + 1) * d], weights @ values / weights.sum())


def test_an_index_outside_its_table_is_refused() -> None:
    with pytest.raises(IndexError, match="index -1 at place 1 is outside the table of 5 rows"):
        run("embedding", random(5, 3), np.array([4, -1], np.int32))


@pytest.mark.parametrize("size", [(5, 4), (10, 8), (3, 9), (1, 1), (7, 2)])
def test_resize_interpolates_between_centres(size: tuple[int, int]) -> None:
    x = random(5, 4, 2)
    got = run("resize", x, height=size[0], width=size[1])

    def place(index: int, source: int, target: int) -> tuple[int, int, float]:
        centre = max((index + 0.5) * source / target - 0.5, 0)
        return int(centre), min(int(centre) + 1, source - 1), centre - int(centre)

    for i, j in np.ndindex(*size):
        (top, bottom, down), (left, right, across) = place(i, 5, size[0]), place(j, 4, size[1])
        upper = x[top, left] * (1 - across) + x[top, right] * across
        lower = x[bottom, left] * (1 - across) + x[bottom, right] * across
        np.testing.assert_allclose(got[i, j], upper * (1 - down) + lower * down)


@pytest.mark.parametrize("axis", [0, 1])
def test_resampled_pixels_are_rounded_sums_of_neighbours(axis: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (6, 5, 2)).astype(np.uint8)
    first = np.array([0, 3, 1], np.int32)
    share = np.array([[0.5, 0.5], [1.25, -0.25], [-0.125, 1.125]])
    got = run("resample", x, first, (share * 2**22).astype(np.int32), axis=axis)
    lines = np.moveaxis(x, axis, 0)
    exact = np.stack([share[i, 0] * lines[f] + share[i, 1] * lines[f + 1] for i, f in enumerate(first)])
    expected = np.moveaxis(np.clip(np.floor(exact + 0.5), 0, 255), 0, axis)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, expected)


def test_neighbours_outside_an_image_are_refused() -> None:
    x, weights = np.zeros((4, 4, 3), np.uint8), np.zeros((1, 2), np.int32)
    for first, message in ((3, "the last neighbour 4 at place 0"), (-1, "the first neighbour -1 at place 0")):
        with pytest.raises(IndexError, match=f"{message} is outside the axis of 4 rows"):
            run("resample", x, np.array([first], np.int32), weights, axis=0)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (4, 2)])
@pytest.mark.parametrize("biased", [False, True])
def test_attention(heads: int, kv_heads: int, biased: bool) -> None:
    q, k, v = random(3, heads * 2), random(5, kv_heads * 2), random(5, kv_heads * 2)
    bias = random(heads, 3, 5) if biased else None
    got = run("attention", q, k, v, bias, heads=heads, kv_heads=kv_heads, scale=0.3)
    for h in range(heads):
        shared = h // (heads // kv_heads)
        for i in range(3):
            query = q[i, 2 * h : 2 * h + 2]
            scores = [0.3 * float(query @ k[j, 2 * shared : 2 * shared + 2]) for j in range(5)]
            if bias is not None:
                scores = [s + float(bias[h, i, j]) for j, s in enumerate(scores)]
            weights = [math.exp(s) for s in scores]
            expected = sum(w * v[j, 2 * shared : 2 * shared + 2] for j, w in enumerate(weights)) / sum(
                weights
            )
            np.testing.assert_allclose(got[i, 2 * h : 2 * h + 2], expected)


def test_attention_with_a_mask_for_all_heads() -> None:
    q, k, v = random(3, 4), random(5, 4), random(5, 4)
    mask = np.where(np.tri(3, 5, 1) > 0, 0.0, -np.inf)[None]
    got = run("attention", q, k, v, mask, heads=2, kv_heads=2, scale=0.3)
    expected = run("attention", q, k, v, np.repeat(mask, 2, 0), heads=2, kv_heads=2, scale=0.3)
    np.testing.assert_array_equal(got, expected)
    first = run("attention", q[:1], k[:2], v[:2], None, heads=2, kv_heads=2, scale=0.3)
    np.testing.assert_allclose(got[:1], first)


def test_attention_with_large_scores_does_not_overflow() -> None:
    q = np.full((1, 2), 1e3)
    got = run("attention", q, q, random(1, 2), None, heads=1, kv_heads=1, scale=1.0)
    assert np.isfinite(got).all()


def test_moves() -> None:
    x, y = random(3, 4), random(3, 2)
    np.testing.assert_array_equal(run("concat", x, y, axis=1), np.hstack([x, y]))
    np.testing.assert_array_equal(run("slice", x, axis=1, start=1, stop=3), x[:, 1:3])
    np.testing.assert_array_equal(run("reshape", x, shape=(2, 6)), x.reshape(2, 6))
    np.testing.assert_allclose(run("mean_rows", x), x.mean(0)[None])
    z = random(2, 3, 4)
    turned = run("transpose", z, axes=(2, 0, 1))
    for i, j, k in np.ndindex(2, 3, 4):
        assert turned[k, i, j] == z[i, j, k]


def test_everything_is_computed_in_the_type_asked_for() -> None:
    x, w = random(3, 4), random(2, 4)
    operands = (x, w, None, None, None, None)
    assert run("linear", *operands, activation="gelu", dtype=np.float32).dtype == np.float32
    assert run(
        "linear", *(v if v is None else v.astype(np.float32) for v in operands), activation="gelu"
    ).dtype == (np.float64)
    ids = np.arange(3, dtype=np.int32)
    assert run("slice", ids, axis=0, start=0, stop=2).dtype == np.int32
