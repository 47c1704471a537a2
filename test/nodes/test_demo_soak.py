"""The bounds of a soak, from reports made up here."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")

from vla_simd_ros.nodes.demo_processes import Usage
from vla_simd_ros.nodes.demo_report import CameraCount
from vla_simd_ros.nodes.demo_soak import MIB, NODES, SoakReport, SoakSample, format_soak, soak_failures


def sample(minutes: float, *mebibytes: float) -> SoakSample:
    sizes = mebibytes or (100.0, 200.0, 90.0)
    nodes = {name: Usage(1.0, round(size * MIB)) for name, size in zip(NODES, sizes, strict=True)}
    return SoakSample(minutes, nodes, late_steps=round(5 * minutes))


GOOD = SoakReport(
    samples=[sample(0.0, 10.0, 10.0, 10.0), sample(1.0), sample(2.0, 104.0, 204.9, 90.0)],
    control_steps=10_000,
    late_steps=10,
    cameras={"front": CameraCount(3600, 3600), "wrist": CameraCount(3600, 3598)},
    chunks_published=500,
    chunks_received=500,
    chunks_rejected=0,
)


def test_a_good_soak_keeps_all_bounds() -> None:
    assert soak_failures(GOOD) == []
    text = format_soak(GOOD)
    assert text.endswith("all bounds are kept")
    assert text.splitlines()[3].split() == ["2.0", "104.0", "204.9", "90.0", "10"]
    # Growth is counted from the first minute, not from the start.
    assert text.splitlines()[4].split() == ["growth", "+4.0", "+4.9", "+0.0"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"samples": [sample(1.0), sample(2.0, 100.0, 206.0, 90.0)]}, "policy_node grew by 6.0 MiB"),
        ({"late_steps": 11}, "0.11% of the control steps were late"),
        ({"control_steps": 0, "late_steps": 0}, "100.00% of the control steps"),
        ({"cameras": {"front": CameraCount(3600, 3590)}}, "0.28% of a camera's frames were lost"),
        ({"cameras": {"front": CameraCount(None, None)}}, "100.00% of a camera's frames were lost"),
        ({"chunks_received": 499}, "1 chunks were lost"),
    ],
)
def test_each_bound_that_is_not_kept_is_named(changes: dict[str, object], complaint: str) -> None:
    report = replace(GOOD, **changes)  # type: ignore[arg-type]
    (failure,) = soak_failures(report)
    assert complaint in failure
    assert f"FAILED: {failure}" in format_soak(report)
