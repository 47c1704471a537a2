from __future__ import annotations

import pytest

from vla_simd_ros.benchmarks.kernels import (
    Ceilings,
    below_target,
    ceilings_table,
    distinct_layers,
    layers_table,
)
from vla_simd_ros.benchmarks.profile import OpTime


def op(kind: str, shape: str, rows: int, ms: float, cols: int = 512) -> OpTime:
    return OpTime(f"{kind} {shape} {ms}", kind, "b", shape, rows, cols, 10**9, 0, ms)


OPS = [
    op("conv2d", "3x3", 4800, 12.5),
    op("linear", "634x512x512", 634, 10.0),
    op("linear", "634x512x512", 634, 22.0),
    op("linear", "634x512x3200", 634, 11.0),
    op("linear", "1x6x512", 1, 100.0),
    op("layer_norm", "634x512", 634, 1.0),
]


def alone(name: str) -> float:
    """Everything takes 10 ms alone, but the first layer of its shape 12.5."""
    return 12.5 if "512x512" in name else 10.0


def test_alike_operations_are_one_layer_at_their_mean_time() -> None:
    layers = {layer.shape: layer for layer in distinct_layers(OPS, alone, peak_gflops=100.0, tile_cols=32)}
    assert list(layers) == ["634x512x512", "634x512x3200", "1x6x512", "3x3"]
    layer = layers["634x512x512"]
    assert (layer.count, layer.in_query_ms, layer.alone_ms) == (2, 16.0, 12.5)
    assert layer.share_in_query == pytest.approx(0.625)
    assert layer.share_alone == pytest.approx(0.8)


def test_one_of_each_kind_and_shape_is_measured_alone() -> None:
    asked: list[str] = []
    distinct_layers(OPS, lambda name: asked.append(name) or 1.0, peak_gflops=1.0, tile_cols=32)  # type: ignore[func-returns-value]
    assert asked == [OPS[0].name, OPS[1].name, OPS[3].name, OPS[4].name]


def test_only_linear_layers_of_many_rows_are_judged() -> None:
    layers = distinct_layers(OPS, alone, peak_gflops=100.0, tile_cols=32)
    assert [layer.reaches_target for layer in layers] == [False, True, None, None]
    assert [layer.shape for layer in below_target(layers)] == ["634x512x512"]


@pytest.mark.parametrize(("rows", "ms", "verdict"), [(33, 11.7, True), (33, 11.8, False), (32, 50.0, None)])
def test_the_target_s_limits(rows: int, ms: float, verdict: bool | None) -> None:
    (layer,) = distinct_layers([op("linear", "s", rows, 99.0)], lambda _: ms, peak_gflops=100.0, tile_cols=32)
    assert layer.reaches_target is verdict


def test_a_layer_that_cannot_fill_the_tile_is_called_narrow() -> None:
    head = op("linear", "50x512x6", 50, 99.0, cols=6)
    layers = distinct_layers([head], lambda _: 99.0, peak_gflops=100.0, tile_cols=32)
    assert layers[0].reaches_target is None and not below_target(layers)
    assert layers_table(layers)[2].split("|")[3].strip() == "narrow"


def test_tables_show_peak_rate_and_verdict() -> None:
    ceilings = ceilings_table(Ceilings({"avx2": 100.26, "avx512": 199.0}, 21.5))
    assert [row.split("|")[2].strip() for row in ceilings[2:]] == [
        "100.3 GFLOP/s",
        "199.0 GFLOP/s",
        "21.5 GB/s",
    ]
    rows = layers_table(distinct_layers(OPS, alone, peak_gflops=100.0, tile_cols=32))
    assert [row.split("|")[3].strip() for row in rows[2:]] == ["below", "reached", "", ""]
    assert "100.0" in rows[3] and "90.9" in rows[3]
