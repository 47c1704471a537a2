"""``vla_simd split --simulate``: its table, its recordings and its errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.hybrid.load_traces import LOAD_KINDS
from vla_simd_ros.hybrid.stage_costs import BlockCost, StageCosts, write_costs


@pytest.fixture
def split(tmp_path: Path) -> list[str]:
    """The command for ten blocks of 10 ms on either side."""
    blocks = tuple(BlockCost(f"layer.{i}", 0.01, 0.01, 1, 1, 0) for i in range(10))
    write_costs(StageCosts(blocks, 0.0, 1e9), tmp_path / "costs.json")
    return ["split", "--costs", str(tmp_path / "costs.json"), "--noise", "0", "--trace-frames", "200"]


def rows(printed: str) -> list[list[str]]:
    """Of the last table."""
    found = [line for line in printed.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[2:]]


def test_a_recording_is_gone_through(
    split: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drive.csv").write_text("0,0\n" * 100 + "0,0.5\n" * 100, encoding="utf-8")
    assert main([*split, "--simulate", str(tmp_path / "drive.csv")]) == 0
    printed = capsys.readouterr().out
    assert "Simulated with a zone of 1 to 9 blocks, noise of 0%, 0 frames under way" in printed
    # 50 ms without a load, 70 with; the first two loaded frames take 100. Six and seven blocks: 70 for all.
    ((name, side, moved, knows, longer, fixed, fixed_longer, against, moves),) = rows(printed)
    assert (name, side, moves) == ("drive", "recorded", "1")
    assert (knows, fixed, fixed_longer) == ("60.0", "70.0 (6 blocks)", "16.7%")
    assert float(moved) == pytest.approx(60.3)
    assert (longer, against) == ("0.5%", "-13.9%")
    assert printed.endswith("against the best fixed cut -13.9% in the mean, -13.9% at most.\n")


def test_every_kind_is_gone_through_on_either_side_and_both(
    split: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*split, "--simulate", "all", "--trace-frames", "60"]) == 0
    printed = capsys.readouterr().out
    named = [(name, side) for name, side, *_ in rows(printed)]
    assert named == [(kind, side) for kind in LOAD_KINDS for side in ("prefix", "suffix", "both")]
    assert re.search(rf"\n{len(named)} traces: \d+\.\d% longer than who knows in the mean", printed)


def test_a_delay_costs(split: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    moved = []
    for delay in ("0", "2"):
        assert main([*split, "--simulate", "levels-10-40", "--zone", "3:8", "--delay", delay]) == 0
        printed = capsys.readouterr().out
        assert "a zone of 3 to 8 blocks" in printed
        moved.append(float(rows(printed)[2][2]))
    assert moved[0] < moved[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--simulate", "rain"], "the load 'rain' is unknown, expected one of none, constant"),
        (["--simulate", "none.csv"], "none.csv: cannot be read"),
        (["--simulate", "walk", "--delay", "-1"], "the delay is -1 frames"),
        (["--simulate", "walk", "--noise", "-0.1"], "the noise is -0.1"),
        (["--simulate", "walk", "--zone", "3:99"], "expected 0 to 10"),
    ],
)
def test_a_simulation_that_cannot_be_is_one_line(
    split: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*split, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("vla_simd: ") and error.count("\n") == 1
