from __future__ import annotations

from vla_simd_ros.graph.ir import DType, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op
from vla_simd_ros.tuning.packed_layers import packed_layers
from vla_simd_ros.tuning.tile_sweep import LinearShape


def t(*shape: int) -> Tensor:
    return Tensor("t", shape, DType.F32, Lifetime.QUERY, "")


def linear(rows: int, depth: int, cols: int) -> Op:
    inputs = (t(rows, depth), t(cols, depth), None, None, None, None)
    return make_op("linear", inputs, {"activation": "none"}, name="y", block="")


def conv2d(size: int, channels: int, filters: int) -> Op:
    attrs = {"stride": 1, "padding": 1, "dilation": 1, "activation": "none"}
    inputs = (t(size, size, channels), t(filters, 3, 3, channels), None, None, None, None)
    return make_op("conv2d", inputs, attrs, name="y", block="")


NORM = make_op("layer_norm", (t(3, 4), t(4), t(4)), {"eps": 1e-5}, name="y", block="")


def test_heads_that_fill_no_vector_or_do_no_work_are_left_out() -> None:
    ops = [conv2d(20, 64, 96), NORM, linear(600, 512, 512), linear(50, 512, 6), linear(1, 14, 40)]
    layers = packed_layers(ops, lanes=8)
    assert layers.widths == (96, 512)
    assert layers.left_out == (6, 40)
    assert layers.shapes == (LinearShape(600, 512, 512),)


def test_the_linear_layers_with_the_most_work_come_first_and_once() -> None:
    ops = [linear(10, 64, 64), linear(10, 64, 128), linear(10, 64, 64), linear(10, 64, 64)]
    ops += [linear(rows, 64, 64) for rows in range(50, 56)]
    layers = packed_layers(ops, lanes=8)
    assert layers.shapes == tuple(LinearShape(rows, 64, 64) for rows in (55, 54, 53, 52, 51, 50))
