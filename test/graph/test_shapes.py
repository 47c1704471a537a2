from __future__ import annotations

import re
from typing import Any

import pytest

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Lifetime, Tensor
from vla_simd_ros.graph.shapes import infer


def t(*shape: int, dtype: DType = DType.F32, name: str = "t") -> Tensor:
    return Tensor(name, shape, dtype, Lifetime.QUERY, "")


U8, I32 = DType.U8, DType.I32
NONE4 = (None,) * 4
CONV = {"stride": 1, "padding": 0, "dilation": 1, "activation": "none"}
LINEAR = {"activation": "none"}
GROUPS = {"groups": 2, "eps": 1e-5, "activation": "none"}
HEADS = {"heads": 2, "kv_heads": 2, "scale": 1.0}

ACCEPTED: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("normalize_image", (t(4, 5, 3, dtype=U8), t(3), t(3)), {}, (4, 5, 3)),
    ("embedding", (t(10, 4), t(3, dtype=I32)), {}, (3, 4)),
    ("linear", (t(3, 4), t(2, 4), *NONE4), LINEAR, (3, 2)),
    ("linear", (t(3, 4), t(2, 4), t(2), t(1, 2), t(1, 2), t(2)), {"activation": "relu"}, (3, 2)),
    ("conv2d", (t(7, 9, 3), t(8, 3, 3, 3), *NONE4), {**CONV, "stride": 2, "padding": 1}, (4, 5, 8)),
    ("conv2d", (t(7, 9, 3), t(8, 3, 3, 3), *NONE4), {**CONV, "padding": 2, "dilation": 2}, (7, 9, 8)),
    ("conv2d", (t(7, 9, 3), t(8, 1, 1, 3), t(8), t(7, 9, 8), t(8), t(8)), CONV, (7, 9, 8)),
    (
        "conv2d",
        (t(7, 9, 3), t(8, 1, 4, 3), *NONE4),
        {**CONV, "stride": (2, 3), "padding": ((1, 0), (0, 2))},
        (4, 3, 8),
    ),
    ("batch_norm", (t(7, 9, 3), t(3), t(3), t(3), t(3)), {"eps": 1e-5}, (7, 9, 3)),
    ("film", (t(7, 9, 3), t(1, 3), t(3)), {}, (7, 9, 3)),
    ("max_pool2d", (t(7, 9, 3),), {"kernel": 3, "stride": 2, "padding": 1}, (4, 5, 3)),
    ("binary", (t(3, 4), t(4)), {"op": "add"}, (3, 4)),
    ("binary", (t(7, 9, 3), t(1, 3)), {"op": "mul"}, (7, 9, 3)),
    ("binary", (t(3, 4), t(1)), {"op": "min"}, (3, 4)),
    ("binary", (t(3, 4), t(1, 1)), {"op": "max"}, (3, 4)),
    ("binary", (t(3, 4), t(3, 1)), {"op": "mul"}, (3, 4)),
    ("binary", (t(7, 9, 3), t(7, 9, 1)), {"op": "mul"}, (7, 9, 3)),
    ("activation", (t(3, 4),), {"fn": "silu"}, (3, 4)),
    ("activation", (t(3, 4),), {"fn": "mish"}, (3, 4)),
    ("group_norm", (t(5, 6), t(6), t(6)), {**GROUPS, "groups": 3}, (5, 6)),
    ("group_norm", (t(2, 5, 6), t(6), t(6)), {**GROUPS, "groups": 6}, (2, 5, 6)),
    ("softmax", (t(3, 4),), {}, (3, 4)),
    ("rotary", (t(3, 8), t(3, 2), t(3, 2)), {"heads": 2}, (3, 8)),
    ("append", (t(9, 8), t(3, 4), t(3, 4), t(3, dtype=I32)), {}, (9, 8)),
    ("cached_attention", (t(3, 8), t(9, 8), t(3, dtype=I32)), {**HEADS, "kv_heads": 1}, (3, 8)),
    ("transpose", (t(3, 4),), {"axes": (1, 0)}, (4, 3)),
    ("transpose", (t(3, 4, 5),), {"axes": (2, 0, 1)}, (5, 3, 4)),
    ("resize", (t(7, 9, 3),), {"height": 14, "width": 4}, (14, 4, 3)),
    ("attention", (t(3, 8), t(5, 8), t(5, 8), t(1, 3, 5)), HEADS, (3, 8)),
    ("layer_norm", (t(3, 4), t(4), t(4)), {"eps": 1e-5}, (3, 4)),
    ("rms_norm", (t(3, 4), t(4)), {"eps": 1e-6}, (3, 4)),
    ("attention", (t(3, 8), t(5, 8), t(5, 8), t(2, 3, 5)), HEADS, (3, 8)),
    ("attention", (t(3, 8), t(5, 4), t(5, 4), None), {"heads": 4, "kv_heads": 2, "scale": 1.0}, (3, 8)),
    ("mean_rows", (t(3, 4),), {}, (1, 4)),
    ("concat", (t(3, 4), t(2, 4), t(1, 4)), {"axis": 0}, (6, 4)),
    ("concat", (t(3, 4), t(3, 1)), {"axis": 1}, (3, 5)),
    ("slice", (t(3, 4),), {"axis": 1, "start": 1, "stop": 3}, (3, 2)),
    ("reshape", (t(3, 4),), {"shape": (2, 6)}, (2, 6)),
]


@pytest.mark.parametrize(("kind", "inputs", "attrs", "shape"), ACCEPTED)
def test_result_shapes(
    kind: str, inputs: tuple[Any, ...], attrs: dict[str, Any], shape: tuple[int, ...]
) -> None:
    assert infer(kind, inputs, attrs) == (shape, DType.F32)


def test_resampled_images_stay_bytes() -> None:
    operands = t(7, 9, 3, dtype=U8), t(4, dtype=I32), t(4, 5, dtype=I32)
    assert infer("resample", operands, {"axis": 0}) == ((4, 9, 3), U8)
    assert infer("resample", operands, {"axis": 1}) == ((7, 4, 3), U8)


def test_views_keep_the_dtype() -> None:
    ids = t(6, dtype=I32)
    assert infer("slice", (ids,), {"axis": 0, "start": 0, "stop": 2}) == ((2,), I32)
    assert infer("concat", (ids, ids), {"axis": 0}) == ((12,), I32)


X = t(3, 4, name="x")
BYTES = t(3, 4, 3, dtype=U8)
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("sort", (X,), {}, "unknown operation kind 'sort', expected one of activation, append, attention"),
    ("linear", (X,), LINEAR, "got 1 inputs, expected 6 (x weight bias?"),
    ("linear", (X, None, *NONE4), LINEAR, "input 'weight' is missing"),
    (
        "linear",
        (X, t(2, 5, name="w"), *NONE4),
        LINEAR,
        "x 'x' is [3, 4] float32, weight 'w' is [2, 5] float32; expected x [M, K] and weight [N, K]",
    ),
    ("linear", (X, t(2, 4), t(3), None, None, None), LINEAR, "expected bias [2]"),
    ("linear", (X, t(2, 4), None, t(2, 2), None, None), LINEAR, "expected residual [3, 2] or [1, 2]"),
    ("linear", (X, t(2, 4), None, None, t(2), None), LINEAR, "expected gamma and beta together"),
    ("linear", (X, t(2, 4), None, None, t(3), t(3)), LINEAR, "expected gamma [2] or [1, 2]"),
    (
        "linear",
        (X, t(2, 4), *NONE4),
        {"activation": "elu"},
        "activation 'elu' is unknown, expected none, relu",
    ),
    ("linear", (t(3, 4, dtype=U8), t(2, 4), *NONE4), LINEAR, "expected x of float32"),
    (
        "conv2d",
        (t(7, 9, 3), t(8, 3, 3, 4), *NONE4),
        CONV,
        "expected x [H, W, Cin] and weight [Cout, kh, kw, Cin]",
    ),
    ("conv2d", (t(2, 2, 3), t(8, 3, 3, 3), *NONE4), CONV, "expected an image no smaller than the kernel"),
    ("conv2d", (t(7, 9, 3), t(8, 1, 1, 3), t(7), None, None, None), CONV, "expected bias [8]"),
    (
        "conv2d",
        (t(7, 9, 3), t(8, 1, 1, 3), None, t(7, 9, 7), None, None),
        CONV,
        "expected residual [7, 9, 8]",
    ),
    ("normalize_image", (t(4, 5, 3), t(3), t(3)), {}, "expected an image [H, W, C] of uint8"),
    ("normalize_image", (t(4, 5, 3, dtype=U8), t(1), t(3)), {}, "expected offset and divisor [3]"),
    ("embedding", (t(10), t(3, dtype=I32)), {}, "expected a table [V, D]"),
    ("embedding", (t(10, 4), t(3)), {}, "expected ids [n] of int32"),
    ("embedding", (t(10, 4, dtype=U8), t(3, dtype=I32)), {}, "expected table of float32"),
    ("batch_norm", (t(7, 9, 3), t(3), t(3), t(4), t(3)), {"eps": 1e-5}, "expected mean [3]"),
    ("film", (t(7, 9, 3), t(4), t(3)), {}, "expected gamma [3] or [1, 3]"),
    (
        "max_pool2d",
        (t(7, 9),),
        {"kernel": 3, "stride": 2, "padding": 1},
        "expected an image [H, W, C] of float32",
    ),
    ("max_pool2d", (t(2, 2, 1),), {"kernel": 3, "stride": 1, "padding": 0}, "no smaller than the window 3x3"),
    (
        "max_pool2d",
        (t(7, 9, 1),),
        {"kernel": 3, "stride": 1, "padding": 2},
        "padding of at most half the window",
    ),
    ("binary", (X, t(3)), {"op": "add"}, "expected b of a's shape, [4] or [1, 4], [1], or [3, 1]"),
    ("binary", (X, t(4, 1)), {"op": "add"}, "expected b of a's shape, [4] or [1, 4], [1], or [3, 1]"),
    ("binary", (t(1), X), {"op": "add"}, "expected b of a's shape"),
    ("group_norm", (X, t(4), t(4)), {**GROUPS, "groups": 3}, "3 groups of 4 channels"),
    ("group_norm", (X, t(4), t(4)), {**GROUPS, "groups": 0}, "0 groups of 4 channels"),
    ("group_norm", (X, t(2), t(4)), GROUPS, "expected weight [4]"),
    ("group_norm", (t(4), t(4), t(4)), GROUPS, "expected rows [M, C] or an image"),
    ("softmax", (t(2, 3, 4),), {}, "expected rows [M, N]"),
    ("rotary", (X, t(3, 2), t(3, 1)), {"heads": 1}, "expected cos and sin [3, 2]"),
    ("rotary", (X, t(3, 1), t(3, 1)), {"heads": 4}, "expected x [M, 4 heads * d] with an even d"),
    ("rotary", (X, t(3, 1), t(3, 1)), {"heads": 0}, "expected x [M, 0 heads * d] with an even d"),
    ("append", (t(9, 6), X, X, t(3, dtype=I32)), {}, "expected keys and values [M, 3]"),
    ("append", (t(2, 8), X, X, t(3, dtype=I32)), {}, "expected no more than 2 rows"),
    ("append", (t(9, 8), X, X, t(3)), {}, "expected positions [3] of int32"),
    ("cached_attention", (X, t(9, 4), t(3, dtype=I32)), HEADS, "expected a state [rows, 8]"),
    ("cached_attention", (X, t(9, 8), t(2, dtype=I32)), HEADS, "expected positions [3] of int32"),
    ("cached_attention", (X, t(9, 8), t(3, dtype=I32)), {**HEADS, "heads": 3}, "3 heads over 2 key-value"),
    ("transpose", (X,), {"axes": (0, 0)}, "expected each of its 2 axes once, got axes [0, 0]"),
    ("transpose", (t(4),), {"axes": (0,)}, "expected two or three axes"),
    ("resize", (X,), {"height": 1, "width": 1}, "expected an image [H, W, C] of float32"),
    ("resize", (t(2, 3, 4),), {"height": 0, "width": 5}, "a size of 0x5; expected at least 1x1"),
    (
        "resample",
        (X, t(2, dtype=I32), t(2, 2, dtype=I32)),
        {"axis": 0},
        "expected an image [H, W, C] of uint8",
    ),
    ("resample", (BYTES, t(2, dtype=I32), t(2, 2, dtype=I32)), {"axis": 2}, "axis is 2; expected 0 or 1"),
    ("resample", (BYTES, t(3, dtype=I32), t(2, 2, dtype=I32)), {"axis": 0}, "expected first [n] and weights"),
    ("resample", (BYTES, t(2, dtype=I32), t(2, 4, dtype=I32)), {"axis": 0}, "with at most 3 taps"),
    ("resample", (BYTES, t(2, dtype=I32), t(2, 2)), {"axis": 0}, "expected first [n] and weights"),
    ("binary", (X, X), {"op": "pow"}, "op 'pow' is unknown, expected add, sub, mul, div"),
    ("activation", (X,), {"fn": "none"}, "fn 'none' is unknown"),
    ("layer_norm", (X, t(3), t(4)), {"eps": 1e-5}, "expected parameters [4]"),
    ("rms_norm", (t(4), t(4)), {"eps": 1e-5}, "expected rows [M, C]"),
    ("attention", (t(3, 8), t(5, 8), t(4, 8), None), HEADS, "expected k and v [N, 8] (2 key-value heads)"),
    ("attention", (t(3, 7), t(5, 7), t(5, 7), None), HEADS, "expected q [M, 2 heads * d]"),
    ("attention", (t(3, 8), t(5, 8), t(5, 8), t(2, 5, 3)), HEADS, "expected bias [2, 3, 5] or [1, 3, 5]"),
    ("attention", (X, X, X, None), {**HEADS, "kv_heads": 3}, "2 heads over 3 key-value heads"),
    ("mean_rows", (t(4),), {}, "expected rows [M, C]"),
    ("concat", (), {"axis": 0}, "got no inputs"),
    ("concat", (X, t(3, 5)), {"axis": 0}, "expected the same dtype and the same shape apart from axis 0"),
    ("concat", (X, t(3, 4, dtype=I32)), {"axis": 0}, "expected the same dtype"),
    ("concat", (X,), {"axis": 2}, "expected an axis of the input, got 2"),
    ("slice", (X,), {"axis": 1, "start": 2, "stop": 5}, "expected a range within axis 1, got 2:5"),
    ("slice", (X,), {"axis": 1, "start": 2, "stop": 2}, "expected a range within axis 1, got 2:2"),
    ("reshape", (X,), {"shape": (5, 2)}, "expected a shape of 12 elements, got [5, 2]"),
    ("reshape", (X,), {"shape": (-3, -4)}, "expected a shape of 12 elements, got [-3, -4]"),
]


@pytest.mark.parametrize(("kind", "inputs", "attrs", "message"), REFUSED)
def test_what_does_not_fit_is_named(
    kind: str, inputs: tuple[Any, ...], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        infer(kind, inputs, attrs)
