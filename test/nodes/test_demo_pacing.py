"""The verdicts of the pacing study."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")

from vla_simd_ros.nodes import demo_pacing
from vla_simd_ros.nodes.demo_pacing import PacingResult, format_pacing, pacing_verdicts

STEADY = PacingResult("continuous", 24.0, 240, 100.0, 1000.0, 0, 105.0, 120.0, 150.0, 0.8)
LATE = replace(
    STEADY,
    pacing="just_in_time",
    queries=30,
    arrival_age_ms=100.0,
    first_age_ms=110.0,
    mean_age_ms=400.0,
    cpu_share=0.4,
)


def test_what_is_saved_and_what_it_costs() -> None:
    saved, share, ages = pacing_verdicts([STEADY, LATE])
    assert saved == "CPU time of the policy node: 50% less (at least 40% wanted: holds)"
    assert share == "a query takes 10% of the window of 1000 ms, less than a third"
    assert ages.startswith(
        "age when a chunk arrives: -5.0 ms, when it takes over: -10.0 ms; mean over all rows: +250.0 ms"
    )


def test_too_little_is_said_so_and_nothing_is_claimed_for_slow_policies() -> None:
    assert "DOES NOT HOLD" in pacing_verdicts([STEADY, replace(LATE, cpu_share=0.7)])[0]
    slow = [replace(result, query_ms=400.0) for result in (STEADY, LATE)]
    saved, share, _ = pacing_verdicts(slow)
    assert "no claim" in saved
    assert "not less than a third" in share


def test_the_table() -> None:
    table = format_pacing([STEADY, LATE]).splitlines()
    ages = ["105.0", "ms", "120.0", "ms", "150.0", "ms"]
    assert table[1].split() == ["continuous", "240", "100.0", "0", *ages, "0.800"]
    assert table[2].split()[0] == "just_in_time"


def test_all_runs_go_on_with_one_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its control steps lie to the frames as in the first run; each pacing has an early and a late place."""
    calls: list[tuple[str, bool]] = []

    class Series:
        def executor_parameter(self, name: str, default: str) -> str:
            return default

        def run(self, variation: Any, seconds: float, chunks_before: int, keep_executor: bool) -> str:
            assert seconds == 7.0 and chunks_before > 50
            assert variation.policy == {"query_pacing": variation.name}
            calls.append((variation.name, keep_executor))
            return f"run {len(calls)}"

    monkeypatch.setattr(demo_pacing, "_result", lambda pacing, runs: (pacing.value, runs))
    found = demo_pacing.pacing_study(Series(), 7.0)  # type: ignore[arg-type]
    assert calls == [
        ("continuous", False), ("just_in_time", True), ("just_in_time", True), ("continuous", True),
    ]  # fmt: skip
    assert found == [("continuous", ["run 1", "run 4"]), ("just_in_time", ["run 2", "run 3"])]
