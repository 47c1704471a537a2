from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.graph.cost import Cost, op_cost, total_cost
from vla_simd_ros.graph.ir import DType, Lifetime, Op, Tensor
from vla_simd_ros.graph.operation import make_op


def t(*shape: int, dtype: DType = DType.F32) -> Tensor:
    return Tensor("t", shape, dtype, Lifetime.QUERY, "")


def op(kind: str, *inputs: Tensor | None, **attrs: Any) -> Op:
    return make_op(kind, inputs, attrs, name="y", block="")


CONV = {"stride": 1, "padding": 1, "dilation": 1}


@pytest.mark.parametrize(
    ("operation", "flops", "elements"),
    [
        (op("linear", t(3, 4), t(2, 4), None, None, None, None, activation="none"), 48, 12 + 8 + 6),
        (
            op("linear", t(3, 4), t(2, 4), t(2), t(3, 2), t(2), t(2), activation="relu"),
            48 + 6 * (1 + 1 + 1 + 2),
            12 + 8 + 2 + 6 + 2 + 2 + 6,
        ),
        (
            op("conv2d", t(5, 6, 2), t(3, 3, 3, 2), None, None, None, None, activation="none", **CONV),
            2 * 5 * 6 * 3 * 18,
            60 + 54 + 90,
        ),
        (
            op("attention", t(3, 8), t(5, 8), t(5, 8), None, heads=2, kv_heads=2, scale=1.0),
            4 * 3 * 5 * 8 + 4 * 2 * 3 * 5,
            24 + 40 + 40 + 24,
        ),
        (op("max_pool2d", t(4, 4, 2), kernel=2, stride=2, padding=0), 8 * 3, 32 + 8),
        (op("layer_norm", t(3, 4), t(4), t(4), eps=1e-5), 96, 12 + 8 + 12),
        (op("film", t(3, 4), t(4), t(4)), 24, 12 + 8 + 12),
        (op("mean_rows", t(3, 4)), 12, 12 + 4),
        (op("group_norm", t(3, 4), t(4), t(4), groups=2, eps=1e-5, activation="none"), 96, 12 + 8 + 12),
        (op("group_norm", t(3, 4), t(4), t(4), groups=2, eps=1e-5, activation="mish"), 108, 12 + 8 + 12),
        (op("softmax", t(3, 4)), 48, 12 + 12),
        (op("rotary", t(3, 8), t(3, 2), t(3, 2), heads=2), 72, 24 + 12 + 24),
        (op("append", t(9, 8), t(3, 4), t(3, 4), t(3, dtype=DType.I32)), 0, 2 * (12 + 12) + 3),
        (
            op("cached_attention", t(3, 8), t(9, 8), t(3, dtype=DType.I32), heads=2, kv_heads=1, scale=1.0),
            4 * 3 * 9 * 8 + 4 * 2 * 3 * 9,
            24 + 72 + 3 + 24,
        ),
        (op("transpose", t(3, 4), axes=(1, 0)), 0, 12 + 12),
        (op("resize", t(2, 2, 3), height=4, width=2), 9 * 24, 12 + 24),
        (op("concat", t(3, 4), t(1, 4), axis=0), 0, 16 + 16),
        # Bytes: a quarter of what other elements take.
        (
            op(
                "resample",
                t(8, 2, 2, dtype=DType.U8),
                t(4, dtype=DType.I32),
                t(4, 3, dtype=DType.I32),
                axis=0,
            ),
            2 * 3 * 16,
            32 // 4 + 4 + 12 + 16 // 4,
        ),
    ],
)
def test_costs(operation: Op, flops: int, elements: int) -> None:
    assert op_cost(operation) == Cost(flops, 4 * elements)


def test_views_are_free() -> None:
    assert op_cost(op("slice", t(3, 4), axis=1, start=0, stop=2)) == Cost()
    assert op_cost(op("reshape", t(3, 4), shape=(4, 3))) == Cost()


def test_an_operand_read_twice_is_counted_once() -> None:
    x = t(3, 4)
    assert op_cost(op("binary", x, x, op="add")).bytes == 4 * (12 + 12)


def test_an_embedding_reads_only_its_rows() -> None:
    ids = t(3, dtype=DType.I32)
    assert op_cost(op("embedding", t(1000, 4), ids)) == Cost(0, 4 * (3 + 12 + 12))


def test_totals_add_up() -> None:
    parts = [op("film", t(3, 4), t(4), t(4)), op("mean_rows", t(3, 4))]
    assert total_cost(parts) == Cost(36, 4 * (32 + 16))
    assert total_cost([]) == Cost()
