"""The table, the plan and the errors of ``vla_simd split``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.hybrid.stage_costs import BlockCost, StageCosts, read_costs, write_costs

GIB = 2**30


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """Vision on the first executor only, then four layers, three times as fast there."""
    vision = BlockCost("vision", 0.100, float("inf"), GIB, 0, 0)
    layers = [BlockCost(f"layer.{i}", 0.010, 0.030, GIB, GIB, 1000) for i in range(4)]
    path = tmp_path / "costs.json"
    write_costs(StageCosts((vision, *layers), 0.0, 1e9, suffix_threads=4, source="by hand"), path)
    return path


def test_costs_of_a_file(costs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", "--costs", str(costs), "--plan", str(tmp_path / "plan.json")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("by hand\n")
    # Three layers take 90 ms on the second executor, less than the 110 ms of the rest on the first.
    assert "Best: the cut after layer.0: a frame every 110.00 ms (200.00 ms each)" in printed
    assert "a block cannot run on the suffix's side" in printed
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert (plan["best"]["after"], plan["best"]["blocks"]) == ("layer.0", 2)
    assert plan["best"]["interval_s"] == pytest.approx(0.110)
    assert [split["blocks"] for split in plan["splits"]] == [0, 1, 2, 3, 4, 5]
    assert plan["splits"][0]["suffix_s"] is None
    assert [split["boundary_bytes"] for split in plan["splits"]] == [0, 0, 1000, 1000, 1000, 0]


def test_limits_move_the_cut(costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", "--costs", str(costs), "--gpu-memory", "1.5 GiB"]) == 0
    assert "Best: the cut after vision" in capsys.readouterr().out
    assert main(["split", "--costs", str(costs), "--cpu-threads", "1"]) == 0
    assert "Best: the cut after layer.2" in capsys.readouterr().out
    assert main(["split", "--costs", str(costs), "--gpu-load", "0.5", "--cpu-memory", "0MiB"]) == 0
    assert "a frame every 280.00 ms" in capsys.readouterr().out


def test_a_checkpoint_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"dim_model": 32, "heads": 4, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1}
    make_checkpoint("act", tmp_path / "act", Options(cameras=(Camera("front", 32, 32),), sizes=sizes))
    saved = tmp_path / "saved.json"
    arguments = ["split", str(tmp_path / "act"), "--prefix", "simd", "--repeats", "1"]
    assert main([*arguments, "--save-costs", str(saved), "--frames", "3", "--at", "encoder.0"]) == 0
    printed = capsys.readouterr().out
    assert "Best: " in printed
    assert re.search(r"  what crosses there in every frame: \S+ \[\d+, 32\] \w+ \(\d+\.\d KiB\)", printed)
    assert "Measured, cut after encoder.0, 3 frames one by one and 3 that overlap" in printed
    assert "encoder.0" in [block.name for block in read_costs(saved).blocks]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu-memory", "8GX"], "'8GX' is no size, expected a number and one of KiB"),
        (["--cpu-threads", "0"], "'0' is no number, expected 1 or more"),
    ],
)
def test_arguments_that_cannot_be(
    costs: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["split", "--costs", str(costs), *arguments])
    assert message in capsys.readouterr().err


def test_what_is_impossible_is_one_line(costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", "--costs", str(costs), "--gpu-memory", "0"]) == 2
    assert "vla_simd: no split is possible: " in capsys.readouterr().err
    assert main(["split", "--costs", str(costs), "--frames", "3"]) == 2
    assert "--frames, --at and --live need a checkpoint to run" in capsys.readouterr().err
    assert main(["split", "--costs", str(costs), "--gpu-load", "1"]) == 2
    assert "prefix_load is 1.0, expected 0 or more and less than 1" in capsys.readouterr().err


def test_a_live_run_is_written_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"dim_model": 32, "heads": 4, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1}
    make_checkpoint("act", tmp_path / "act", Options(cameras=(Camera("front", 32, 32),), sizes=sizes))
    arguments = ["split", str(tmp_path / "act"), "--prefix", "simd", "--repeats", "1", "--live", "0.4"]
    arguments += ["--loads", "0,0.5", "--zone", "3:4", "--out", str(tmp_path / "live")]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "Zone of 3 to 4 blocks: the first side holds" in printed
    content = json.loads((tmp_path / "live" / "live.json").read_text())
    assert [run["fixed"] for run in content["runs"]] == [None, 3, 4]
    assert content["schedule"] == {"side": "suffix", "loads": [0.0, 0.5], "phase_s": 0.2}
    assert "| moved " in (tmp_path / "live" / "live.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loads", "0,1.0"], "'0,1.0' are no shares"),
        (["--loads", "much"], "'much' are no shares"),
        (["--live", "0"], "'0' is no time"),
        (["--zone", "4:3"], "'4:3' is no zone"),
        (["--zone", "4"], "'4' is no zone"),
    ],
)
def test_a_live_run_that_cannot_be(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["split", "somewhere", *arguments])
    assert message in capsys.readouterr().err


def test_a_zone_outside_the_policy_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"dim_model": 32, "heads": 4, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1}
    make_checkpoint("act", tmp_path / "act", Options(cameras=(Camera("front", 32, 32),), sizes=sizes))
    arguments = ["split", str(tmp_path / "act"), "--prefix", "simd", "--repeats", "1", "--live", "0.1"]
    assert main([*arguments, "--zone", "3:99"]) == 2
    assert "zone_last is 99, expected 1 to" in capsys.readouterr().err
