from __future__ import annotations

import dataclasses

import pytest
from rooflines import ROUND

from vla_simd_ros.benchmarks.profile import OpTime, group_by, profile_tables
from vla_simd_ros.benchmarks.work import NO_WORK, Work


def op(kind: str, block: str, flops: int, ms: float, algorithm: str = "") -> OpTime:
    work = Work(flops, flops, 0, 100)
    return OpTime("x", kind, algorithm or kind, "fp32", block, "4x4x4", 4, 4, work, ms)


OPS = [
    op("linear", "encoder.0", 2_000_000, 1.0),
    op("attention", "encoder.0", 1_000_000, 2.0),
    op("linear", "encoder.1", 6_000_000, 1.0),
]


def test_groups_sum_time_work_and_bounds() -> None:
    linear, attention = group_by(OPS, lambda op: op.kind, ROUND)
    assert (linear.label, linear.ops, linear.ms, linear.share) == ("linear", 2, 2.0, 0.5)
    assert linear.work == Work(8_000_000, 8_000_000, 0, 200)
    assert linear.gflops_per_s == pytest.approx(4.0)
    assert linear.bound_ms == pytest.approx(0.08)
    assert linear.roofline_share == pytest.approx(0.04)
    assert attention.share == 0.5


def test_operations_without_time_have_no_rate() -> None:
    view = OpTime("v", "slice", "slice", "fp32", "head", "", 1, 1, NO_WORK, 0.0)
    (group,) = group_by([view], lambda op: op.kind, ROUND)
    assert (group.share, group.gflops_per_s, group.roofline_share) == (0.0, 0.0, None)


def test_groups_tell_what_computed_them() -> None:
    int8 = dataclasses.replace(op("linear", "b", 1, 1.0), precision="int8")
    convolutions = [op("conv2d", "b", 1, 1.0, name) for name in ("direct", "winograd2", "winograd2")]
    (group,) = group_by([*convolutions, int8], lambda op: op.block, ROUND)
    assert group.how == "direct 1, winograd2 2, int8 1"
    assert group.bound_ms is None and group.roofline_share is None


def test_a_step_counts_as_often_as_it_is_run() -> None:
    step = dataclasses.replace(op("linear", "expert.0", 2_000_000, 0.5), program="step", runs=4)
    linear = group_by([OPS[0], step], lambda op: op.kind, ROUND)[0]
    assert (linear.ms, linear.work.flops, linear.ops) == (3.0, 10_000_000, 2)
    assert linear.bound_ms == pytest.approx(0.1)
    rows = [line.split("|")[1].strip() for line in profile_tables([OPS[0], step], ROUND).splitlines() if line]
    assert rows[2:4] == ["query", "step x 4"]
    assert rows[6:8] == ["encoder.0", "step x 4: expert.0"]


def test_tables_list_blocks_in_order_and_kinds_by_time() -> None:
    lines = profile_tables([OPS[1], *OPS], ROUND).splitlines()
    first_cells = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
    assert first_cells == [
        "Block",
        "---------",
        "encoder.0",
        "encoder.1",
        "Kind",
        "---------",
        "attention",
        "linear",
    ]
