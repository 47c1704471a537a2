"""Quantization against its definition in whole numbers and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.graph.evaluate import evaluate
from vla_simd_ros.graph.int8 import LARGEST, precision_of, quantize, quantize_weight
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.graph.operation import make_op

RNG = np.random.default_rng(0)
values = st.one_of(
    st.floats(-1e3, 1e3, width=32).map(lambda v: v if abs(v) > 1e-15 else 0.0),
    st.sampled_from([0.0, -0.0, 127.0, -127.0, 0.5, 1.5, 2.5, 1e15, -1e15, 1e-15]),
)


def matrix(draw: st.DrawFn, rows: int, columns: int) -> Array:
    flat = draw(st.lists(values, min_size=rows * columns, max_size=rows * columns))
    return np.array(flat, np.float32).reshape(rows, columns)


@st.composite
def products(draw: st.DrawFn) -> tuple[Array, Array]:
    m, n, k = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
    return matrix(draw, m, k), matrix(draw, n, k)


def run(kind: str, *operands: Array | None, dtype: type = np.float64, **attrs: object) -> Array:
    inputs = [None if v is None else Tensor("t", v.shape, DType.F32, Lifetime.QUERY, "") for v in operands]
    attrs = {"activation": "none", "precision": "int8", **attrs}
    return evaluate(make_op(kind, inputs, attrs, name="y", block=""), operands, dtype)


def exact_row(x: Array) -> tuple[list[int], Fraction]:
    """Integers and scale of one row by exact arithmetic; Python's round is half to even."""
    scale = max(abs(Fraction(float(v))) for v in x) / LARGEST
    return [round(Fraction(float(v)) / scale) if scale else 0 for v in x], scale


def test_ties_go_to_even_and_the_largest_value_to_127() -> None:
    row = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -126.5, 0]], np.float32)
    integers, scale = quantize(row, (1,))
    assert scale.tolist() == [[1.0]]
    assert integers.tolist() == [[127, 0, 2, 2, 0, -2, -126, 0]]


def test_zeros_have_scale_zero_and_no_warning() -> None:
    with np.errstate(all="raise"):
        integers, scale = quantize(np.zeros((2, 3), np.float32), (1,))
    assert not integers.any() and not scale.any()


@pytest.mark.parametrize("units", range(1, 400))
def test_values_too_small_for_an_exact_scale_stay_in_range(units: int) -> None:
    tiny = np.full((1, 2), np.float32(1e-45) * units, np.float32)
    integers, scale = quantize(tiny, (1,))
    assert np.abs(integers).max() <= LARGEST
    assert np.isfinite(scale).all()


def test_an_outlier_takes_the_scale_of_its_row_alone() -> None:
    x = np.ones((2, 4), np.float32)
    x[0, 0] = 1e4
    integers, _ = quantize(x, (1,))
    assert integers.tolist() == [[127, 0, 0, 0], [127, 127, 127, 127]]


def test_an_image_has_one_scale_and_filters_one_a_channel() -> None:
    x, w = RNG.normal(size=(3, 4, 2)), RNG.normal(size=(5, 3, 3, 2))
    assert quantize(x, (0, 1, 2))[1].shape == (1, 1, 1)
    integers, scale = quantize_weight(w)
    assert scale.dtype == np.float64
    np.testing.assert_allclose(scale.reshape(-1), np.abs(w).reshape(5, -1).max(1) / 127, rtol=1e-6)
    assert (np.abs(integers).reshape(5, -1).max(1) == 127).all()


@given(products())
@settings(max_examples=60, deadline=None)
def test_a_linear_layer_is_its_exact_integer_sum_times_both_scales(case: tuple[Array, Array]) -> None:
    x, w = case
    got = run("linear", x, w, None, None, None, None)
    w_q, w_scale = quantize_weight(w)
    for i, j in np.ndindex(*got.shape):
        integers, scale = exact_row(x[i])
        total = sum(a * int(b) for a, b in zip(integers, w_q[j], strict=True))
        assert got[i, j] == pytest.approx(float(total * scale * Fraction(float(w_scale[j, 0]))), rel=1e-12)


@given(products())
@settings(max_examples=60, deadline=None)
def test_float32_differs_by_rounding_alone(case: tuple[Array, Array]) -> None:
    x, w = case
    got, exact = (run("linear", x, w, None, None, None, None, dtype=t) for t in (np.float32, np.float64))
    # A value at a tie may round the other way: one unit of its row's scale times a weight.
    unit = quantize(x, (1,))[1].astype(np.float64) * np.abs(w.astype(np.float64)).max(1) * x.shape[1]
    assert (np.abs(got - exact) <= 1e-6 * np.abs(exact) + unit * 1.01 + 1e-37).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_error_is_at_most_half_a_unit_of_each_factor(dtype: type) -> None:
    x, w = (RNG.normal(size=s).astype(np.float32) for s in ((7, 50), (6, 50)))
    got = run("linear", x, w, None, None, None, None, dtype=dtype)
    sx, sw = np.abs(x).max(1, keepdims=True) / 127, np.abs(w).max(1) / 127
    bound = (np.abs(w).sum(1) * sx + np.abs(x).sum(1, keepdims=True) * sw) / 2 + 50 * sx * sw / 4
    error = np.abs(got - x.astype(np.float64) @ w.T)
    assert (error <= bound * 1.001).all()
    assert error.max() > 0


def test_sums_are_exact_where_float32_would_round() -> None:
    """2^24 and more: 127 * 127 a term."""
    x, w = np.full((1, 4097), 127, np.float32), np.full((1, 4097), 127, np.float32)
    x[0, 0], w[0, 0] = 1, 1
    got = run("linear", x, w, None, None, None, None)
    assert got[0, 0] == 4096 * 127 * 127 + 1


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 2, 2)])
def test_a_convolution_is_one_of_integers(stride: int, padding: int, dilation: int) -> None:
    walk = {"stride": stride, "padding": padding, "dilation": dilation}
    x, w = RNG.normal(size=(7, 6, 3)).astype(np.float32), RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
    got = run("conv2d", x, w, None, None, None, None, **walk)
    x_scale = np.abs(x.astype(np.float64)).max() / 127
    w_q, w_scale = quantize_weight(w)
    whole = run("conv2d", np.rint(x / x_scale), w_q, None, None, None, None, precision="fp32", **walk)
    assert (whole == np.rint(whole)).all()
    np.testing.assert_allclose(got, whole * (x_scale * w_scale.reshape(-1)), rtol=1e-6)


def test_the_epilogue_is_not_quantized() -> None:
    x, w = np.zeros((2, 3), np.float32), RNG.normal(size=(2, 3)).astype(np.float32)
    bias, residual, gamma, beta = (RNG.normal(size=s) for s in ((2,), (2, 2), (1, 2), (2,)))
    got = run("linear", x, w, bias, residual, gamma, beta, activation="relu")
    np.testing.assert_array_equal(got, (1 + gamma) * np.maximum(bias + residual, 0) + beta)


def test_precision_is_fp32_unless_said() -> None:
    assert precision_of({}) == "fp32"
    assert precision_of({"precision": "int8"}) == "int8"
