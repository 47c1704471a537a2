from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.benchmarks.work import Work, op_work
from vla_simd_ros.graph.ir import DType, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op


def t(*shape: int, dtype: DType = DType.F32) -> Tensor:
    return Tensor("t", shape, dtype, Lifetime.QUERY, "")


def w(*shape: int) -> Tensor:
    return Tensor("w", shape, DType.F32, Lifetime.PROCESS, "")


def op(kind: str, *inputs: Tensor | None, **attrs: Any) -> Op:
    return make_op(kind, inputs, attrs, name="y", block="")


def conv(x: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 1, dilation: int = 1) -> Op:
    window = {"stride": stride, "padding": padding, "dilation": dilation, "activation": "none"}
    return op("conv2d", x, weight, None, None, None, None, **window)


def linear(*inputs: Tensor | None, **attrs: Any) -> Op:
    return op("linear", *inputs, activation="relu", **attrs)


def test_what_follows_a_product_does_not_count() -> None:
    y = linear(t(3, 4), w(2, 4), w(2), t(3, 2), None, None)
    assert op_work(y) == Work(48, 48, 4 * (8 + 2), 4 * (12 + 8 + 2 + 6 + 6))
    assert op_work(y).intensity == 48 / 136


def test_weights_in_int8_are_a_quarter() -> None:
    y = linear(t(3, 4), w(2, 4), None, None, None, None)
    int8 = Op(y.kind, y.inputs, y.output, {**y.attrs, "precision": "int8"})
    assert op_work(int8).weight_bytes == 8


def test_attention_has_two_products() -> None:
    y = op("attention", t(3, 8), t(5, 8), t(5, 8), None, heads=2, kv_heads=2, scale=1.0)
    assert op_work(y) == Work(480, 480, 0, 4 * (24 + 40 + 40 + 24), exponentials=2 * 3 * 5)


@pytest.mark.parametrize(
    ("algorithm", "tiles", "points"), [("winograd2", 3 * 4, 16), ("winograd4", 2 * 2, 36)]
)
def test_winograd_multiplies_less_and_has_larger_filters(algorithm: str, tiles: int, points: int) -> None:
    y = conv(t(5, 8, 3), w(7, 3, 3, 3))
    work = op_work(y, algorithm)
    assert work.flops == op_work(y, "direct").flops == 2 * 5 * 8 * 7 * 27
    assert work.executed == 2 * tiles * points * 3 * 7
    assert work.weight_bytes == 4 * 7 * 3 * points
    assert work.nbytes - work.weight_bytes == 4 * (5 * 8 * 3 + 5 * 8 * 7)


def test_winograd_in_int8_has_filters_of_16_bits() -> None:
    y = conv(t(5, 8, 3), w(7, 3, 3, 3))
    int8 = Op(y.kind, y.inputs, y.output, {**y.attrs, "precision": "int8"})
    work = op_work(int8, "winograd4")
    assert work.executed == op_work(y, "winograd4").executed
    assert work.weight_bytes == 2 * 7 * 3 * 36


def test_strassen_multiplies_an_eighth_less_and_has_larger_weights() -> None:
    y = linear(t(4, 8), w(16, 8), None, None, None, None)
    plain, work = op_work(y), op_work(y, "strassen")
    assert work.flops == plain.flops and work.executed * 8 == plain.flops * 7
    assert work.weight_bytes * 4 == plain.weight_bytes * 7
    assert work.nbytes - work.weight_bytes == plain.nbytes - plain.weight_bytes


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "pixels"),
    [
        (1, 2, 0, 1, 5 * 4),  # every other pixel of every other row
        (1, 1, 0, 1, 9 * 8),
        (3, 2, 1, 1, 9 * 8),
        (2, 3, 0, 1, 6 * 6),  # two of three, and none of the rest
        (3, 1, 1, 2, 9 * 8),
    ],
)
def test_pixels_that_a_convolution_reads(
    kernel: int, stride: int, padding: int, dilation: int, pixels: int
) -> None:
    y = conv(t(9, 8, 3), w(4, kernel, kernel, 3), stride, padding, dilation)
    work = op_work(y)
    assert work.nbytes - work.weight_bytes - y.output.nbytes == pixels * 3 * 4


def test_pixels_that_a_window_reads_with_another_stride_on_each_axis() -> None:
    y = conv(t(9, 8, 3), w(4, 1, 2, 3), (2, 3), ((0, 0), (0, 1)))
    work = op_work(y)
    assert work.nbytes - work.weight_bytes - y.output.nbytes == 5 * 6 * 3 * 4


def test_patches_that_are_stored_are_no_more_work() -> None:
    y = conv(t(1, 8, 3), w(4, 1, 5, 3), 1, ((0, 0), (2, 2)))
    assert op_work(y, "flat") == op_work(y, "direct")


def test_operations_without_products_count_all_they_do() -> None:
    y = op("layer_norm", t(3, 4), w(4), w(4), eps=1e-5)
    assert op_work(y) == Work(96, 96, 32, 4 * (12 + 8 + 12))


def test_an_embedding_reads_the_rows_asked_for() -> None:
    y = op("embedding", w(1000, 8), t(3, dtype=DType.I32))
    assert op_work(y).nbytes == 2 * y.output.nbytes + 12


def test_work_adds_up() -> None:
    assert Work(1, 2, 3, 4, 5) + Work(10, 20, 30, 40) == Work(11, 22, 33, 44, 5)
    assert Work(1, 2, 3, 4, 5) * 3 == Work(3, 6, 9, 12, 15)
    assert Work(0, 0, 0, 0).intensity == 0
