"""The check of the cameras' transport: its numbers, and a short run of it between two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.nodes.transport_check import Arrivals, CheckSettings, run_check, table

CONFIG = Path(__file__).parents[2] / "config"


def arrivals(numbers: list[int], transport: float = 2.0, conversion: float = 1.0) -> Arrivals:
    made = Arrivals()
    for number in numbers:
        made.add(number, transport, conversion)
    return made


def test_frames_that_are_missing_between_two_numbers_were_lost() -> None:
    found = arrivals([5, 6, 8, 9])
    assert (found.sent, found.share) == (5, 0.8)
    assert found.median_ms == 3.0
    assert not found.good


def test_both_bounds_count() -> None:
    assert arrivals(list(range(100))).good
    assert not arrivals(list(range(100)), transport=5.5).good
    assert not Arrivals().good


def test_the_table_says_what_to_do_about_losses() -> None:
    assert "holds" in table({"front": arrivals(list(range(10)))}).splitlines()[-1]
    text = table({"front": arrivals(list(range(10))), "wrist": arrivals([1, 9])})
    assert "DOES NOT HOLD" in text and "FASTRTPS_DEFAULT_PROFILES_FILE" in text
    assert text.splitlines()[2].split()[:4] == ["wrist", "9", "2", "22.22%"]
    assert table({"front": Arrivals()}).splitlines()[1].split()[:4] == ["front", "0", "0", "0.00%"]


def test_frames_between_two_processes_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE", "FASTRTPS_DEFAULT_PROFILES_FILE"):
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    settings: dict[str, Any] = {
        "duration": 1.0, "width": 64, "height": 48, "rate": 50.0, "profile": True, "out": tmp_path,
        "config": CONFIG,
    }  # fmt: skip
    run_check(CheckSettings(**settings))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 cameras, 64x48 rgb8 at 50 Hz for 1 s, with the Fast DDS profile")
    for camera, line in zip(("front", "wrist"), lines[3:5], strict=True):
        name, sent, arrived, *_ = line.split()
        assert name == camera and 0 < int(arrived) <= int(sent)
