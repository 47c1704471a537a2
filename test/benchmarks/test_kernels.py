from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from rooflines import ROUND

from vla_simd_ros.benchmarks.kernels import (
    AloneTime,
    Layer,
    below_target,
    distinct_layers,
    layers_table,
)
from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.benchmarks.work import Work

GFLOP = Work(10**9, 10**9, 0, 4096)  # 10 ms at the peak
WINOGRAD = Work(10**9, 4 * 10**8, 0, 4096)


def op(kind: str, shape: str, rows: int, ms: float, cols: int = 512, algorithm: str = "") -> OpTime:
    name = f"{kind} {shape} {ms}"
    return OpTime(name, kind, algorithm or kind, "fp32", "b", shape, rows, cols, GFLOP, ms)


OPS = [
    op("layer_norm", "634x512", 634, 1.0),
    op("conv2d", "3x3", 4800, 5.0, algorithm="winograd2"),
    op("linear", "634x512x512", 634, 10.0),
    op("linear", "634x512x512", 634, 22.0),
    op("linear", "634x512x3200", 634, 11.0),
    op("linear", "1x6x512", 1, 100.0),
    op("copy", "8x8", 8, 1.0),
    op("append", "8x8", 8, 1.0),
]


def took(algorithm: str, work: Work, ms: float, peak: float = ROUND.peak_gflops) -> AloneTime:
    return AloneTime(algorithm, work, ms, peak)


def alone(name: str) -> list[AloneTime]:
    """Everything takes 10 ms, but the first layer of its shape 12.5, and a convolution has a choice."""
    if name.startswith("conv2d"):
        return [took("direct", GFLOP, 10.0), took("winograd2", WINOGRAD, 5.0)]
    return [took(name.split(maxsplit=1)[0], GFLOP, 12.5 if "512x512" in name else 10.0)]


def takes(ms: float) -> Callable[[str], Sequence[AloneTime]]:
    return lambda name: [took(name.split()[0], GFLOP, ms)]


def layers_of(*ops: OpTime, alone: Callable[[str], Sequence[AloneTime]] = alone) -> list[Layer]:
    return distinct_layers(ops, alone, ROUND, tile_cols=32)


def test_alike_operations_are_one_layer_at_their_mean_time() -> None:
    layers = layers_of(*OPS)
    assert [layer.shape for layer in layers] == [
        "634x512x512",
        "634x512x3200",
        "1x6x512",
        "3x3",
        "3x3",
        "634x512",
    ]
    layer = layers[0]
    assert (layer.count, layer.in_query_ms, layer.alone_ms) == (2, 16.0, 12.5)
    assert layer.share_in_query == pytest.approx(0.625)
    assert layer.share_alone == pytest.approx(0.8)


def test_a_layer_alone_is_held_against_the_peak_of_its_moment() -> None:
    slower = ROUND.peak_gflops * 0.9
    (layer,) = layers_of(op("linear", "s", 634, 16.0), alone=lambda _: [took("linear", GFLOP, 12.5, slower)])
    assert layer.share_alone == pytest.approx(0.8 / 0.9)
    assert layer.share_in_query == pytest.approx(0.625)


def test_every_algorithm_is_a_row_and_only_the_one_in_use_has_a_time_in_the_query() -> None:
    direct, winograd = (layer for layer in layers_of(*OPS) if layer.kind == "conv2d")
    assert (direct.algorithm, direct.in_query_ms, direct.share_in_query) == ("direct", None, None)
    assert (winograd.algorithm, winograd.in_query_ms) == ("winograd2", 5.0)
    assert direct.share_alone == pytest.approx(1.0)
    assert winograd.share_alone == pytest.approx(0.8)  # of the 4 ms that its products take at the peak


def test_a_linear_layer_is_judged_by_its_direct_method() -> None:
    times = [took("linear", GFLOP, 12.5), took("strassen", WINOGRAD, 11.0)]
    linear, strassen = layers_of(op("linear", "s", 634, 11.0, algorithm="strassen"), alone=lambda _: times)
    assert (linear.reaches_target, strassen.reaches_target) == (False, None)
    assert (linear.in_query_ms, strassen.in_query_ms) == (None, 11.0)


def test_one_of_each_kind_and_shape_is_measured_alone() -> None:
    asked: list[str] = []

    def remember(name: str) -> list[AloneTime]:
        asked.append(name)
        return [took("x", GFLOP, 1.0)]

    layers_of(*OPS, alone=remember)
    assert asked == [OPS[i].name for i in (0, 1, 2, 4, 5)]


def test_products_of_many_rows_without_a_choice_are_judged() -> None:
    layers = layers_of(*OPS)
    assert [layer.reaches_target for layer in layers] == [False, True, None, None, None, None]
    assert [layer.shape for layer in below_target(layers)] == ["634x512x512"]


@pytest.mark.parametrize(("rows", "ms", "verdict"), [(33, 11.7, True), (33, 11.8, False), (32, 50.0, None)])
@pytest.mark.parametrize("kind", ["linear", "conv2d", "attention"])
def test_the_target_s_limits(kind: str, rows: int, ms: float, verdict: bool | None) -> None:
    (layer,) = layers_of(op(kind, "s", rows, 99.0), alone=takes(ms))
    assert layer.reaches_target is verdict


def test_a_layer_that_cannot_fill_the_tile_is_called_narrow() -> None:
    layers = layers_of(op("linear", "50x512x6", 50, 99.0, cols=6), alone=takes(99.0))
    assert layers[0].reaches_target is None and not below_target(layers)
    assert layers_table(layers)[2].split("|")[4].strip() == "narrow"


def test_the_table_shows_rates_shares_and_verdicts() -> None:
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in layers_table(layers_of(*OPS))]
    assert [row[3] for row in rows[2:]] == ["below", "reached", "", "", "", ""]
    header, winograd = rows[0], next(row for row in rows if row[2] == "winograd2")
    cells = dict(zip(header[:13], winograd[:13], strict=True))
    assert (cells["GFLOP/s"], cells["executed"], cells["% of roofline"]) == ("200.0", "80.0", "80.0")
    assert header[13] == "with exponentials"
    assert winograd[13:] == ["", "5.000", "80.0"]
    direct = next(row for row in rows if row[2] == "direct")
    assert direct[13:] == ["", "", ""]


def test_exponentials_have_a_share_of_their_own_and_no_part_in_the_verdict() -> None:
    work = replace(GFLOP, exponentials=10**7)  # 1.0 ms more at the peak
    (layer,) = layers_of(op("attention", "s", 50, 99.0), alone=lambda _: [took("attention", work, 12.5)])
    assert layer.share_alone == pytest.approx(0.8)
    assert layer.share_with_exponentials == pytest.approx(0.88)
    assert layer.reaches_target is False
    row = [cell.strip() for cell in layers_table([layer])[2].split("|")]
    assert row[13:15] == ["80.0", "88.0"]
