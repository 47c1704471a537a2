"""A study's table, picture and verdict, from rows made up here."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")

from vla_simd_ros.control.frame_schedule import Expected, SupplyPrediction
from vla_simd_ros.control.schedule import Schedule, query_steps
from vla_simd_ros.control.starvation import starvation
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.nodes.demo_measured import Measured
from vla_simd_ros.nodes.demo_studies import StudyRow, misses
from vla_simd_ros.nodes.demo_study_report import draw_study, format_study


def row(name: str, starved: int = 36, stale: int = 500, **ages: float) -> StudyRow:
    counts = Measured(
        seconds=12.0, executed=324, starved=starved, stale=stale, chunks=50, cpu_share=0.3,
        mean_age_s=ages.get("age", 0.25), mean_first_age_s=0.2,
    )  # fmt: skip
    expected = Expected(0.25, 0.24, 0.26)
    predicted = SupplyPrediction(
        12.0,
        starved_share=Expected(0.1, 0.05, 0.2),
        starved=Expected(36.0, 18.0, 72.0),
        stale=Expected(500.0, 450.0, 550.0),
        chunks=Expected(50.0, 49.0, 51.0),
        mean_age_s=expected,
        mean_first_age_s=expected,
    )
    on_ticks = starvation(query_steps([0.2], Schedule(30.0, 13)), Mode.TIME_ALIGNED)
    return StudyRow(name, 200.0, "time_aligned", 13, counts, predicted, on_ticks)


def test_the_table_has_measured_beside_predicted() -> None:
    lines = format_study([row("200 ms"), row("2000 ms", age=math.nan)]).splitlines()
    assert lines[2].split() == [
        *("200", "ms", "10.00", "10.00", "[5.00,", "20.00]", "0.00"),
        *("10.00", "10.00", "[9.00,", "11.00]", "250", "250", "[240,", "260]"),
    ]
    assert "-" in lines[3].split()


def test_what_lies_outside_is_named() -> None:
    assert misses([row("a")]) == []
    assert misses([row("a"), row("b", starved=73, stale=449)]) == [
        "b: 73 starved, predicted 18 to 72",
        "b: 449 stale, predicted 450 to 550",
    ]


def test_the_picture(tmp_path: Path) -> None:
    rare = row("c")
    share = Expected(mean=0.001, low=0.0, high=0.0)
    rare = replace(rare, predicted=replace(rare.predicted, starved_share=share))
    draw_study([row("a"), row("b", age=math.nan), rare], "Delays", "ms", tmp_path / "study.png")
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
