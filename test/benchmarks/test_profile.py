from __future__ import annotations

import pytest

from vla_simd_ros.benchmarks.profile import OpTime, group_by, profile_tables

OPS = [
    OpTime("a", "linear", "encoder.0", "4x4x4", 4, 4, 2_000_000, 100, 1.0),
    OpTime("b", "attention", "encoder.0", "4x4", 4, 4, 1_000_000, 100, 2.0),
    OpTime("c", "linear", "encoder.1", "4x4x4", 4, 4, 6_000_000, 100, 1.0),
]


def test_groups_sum_time_and_work() -> None:
    linear, attention = group_by(OPS, lambda op: op.kind)
    assert (linear.label, linear.ops, linear.ms, linear.share, linear.flops) == (
        "linear",
        2,
        2.0,
        0.5,
        8_000_000,
    )
    assert linear.gflops_per_s == pytest.approx(4.0)
    assert attention.share == 0.5


def test_operations_without_time_have_no_rate() -> None:
    (group,) = group_by([OpTime("v", "slice", "head", "", 1, 1, 0, 0, 0.0)], lambda op: op.kind)
    assert (group.share, group.gflops_per_s) == (0.0, 0.0)


def test_tables_list_blocks_in_order_and_kinds_by_time() -> None:
    lines = profile_tables([OPS[1], *OPS]).splitlines()
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
