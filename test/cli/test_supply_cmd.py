from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from iterating_policy import SIDE, STATE, IteratingPolicy

from vla_simd_ros import inference
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.fidelity import observations

SIZES = {"dim_model": 16, "heads": 2, "feedforward": 24, "encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("supply") / "act"
    options = Options(cameras=(Camera("top", 32, 48),), sizes={**SIZES, "chunk_size": 20})
    make_checkpoint("act", folder, options)
    return str(folder)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    rng = np.random.default_rng(0)
    path.write_text("\n".join(str(value) for value in rng.lognormal(np.log(300.0), 0.3, 400)))
    return str(path)


def test_a_trace_needs_no_checkpoint(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["supply", "--trace", trace, "--window", "30", "--rate", "30", "--added", "20"]) == 0
    text = capsys.readouterr().out
    assert "window H = 30 rows, 30 Hz, queries back to back, 20 ms for camera and transport" in text
    assert re.search(r"^median +\d\d\d\.\d +10 +met, \+20 +met, \+10", text, re.MULTILINE)
    assert re.search(r"^p99.9 .* fails, -\d+", text, re.MULTILINE)
    assert re.search(r"^time_aligned +0\.\d", text, re.MULTILINE)
    assert "p99.9 is the longest one measured" in text
    assert text.rstrip().splitlines()[-1].startswith("Use lagged")


def test_the_report_can_be_read_back_as_a_trace(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "one.json", tmp_path / "two.json"
    arguments = ["--window", "25", "--interval", "15", "--json"]
    assert main(["supply", "--trace", trace, *arguments, str(first)]) == 0
    assert main(["supply", "--trace", str(first), *arguments, str(second)]) == 0
    one, two = (json.loads(path.read_text()) for path in (first, second))
    assert (one["samples"], one["interval"], one["window"]) == (400, 15, 25)
    for name in ("budgets", "starvation", "advice"):
        assert one[name] == two[name]
    for rates in one["starvation"]:
        run = rates["simulated"]
        assert run["low"] * 0.9 <= rates["per_hour"] <= run["high"] * 1.1
    assert "a query every 15 steps" in capsys.readouterr().out


def test_a_checkpoint_is_measured(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.json"
    options = ["--queries", "12", "--threads", "1", "--isa", "portable", "--json", str(file)]
    assert main(["supply", folder, *options]) == 0
    report = json.loads(file.read_text())
    assert (report["samples"], report["window"]) == (12, 20)
    assert all(0 < latency < 60_000 for latency in report["latencies_ms"])
    assert report["supply_rate"] == pytest.approx(20e3 / np.median(report["latencies_ms"]))
    captured = capsys.readouterr()
    assert captured.out.startswith("act on ") and "portable, 1 threads" in captured.out
    assert "measuring 12 queries of act" in captured.err


def test_a_trace_may_stand_for_a_checkpoints_queries(
    folder: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["supply", folder, "--trace", trace]) == 0
    assert "window H = 20 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "neither a checkpoint nor --trace"),
        (["--trace", "TRACE"], "expected --window"),
        (["--trace", "TRACE", "--window", "0"], "window is 0 rows"),
        (["--trace", "TRACE", "--window", "9", "--rate", "-1"], "control rate is -1.0"),
        (["--trace", "TRACE", "--window", "9", "--json", "/nowhere/x.json"], "there is no folder /nowhere"),
        (["--trace", "missing.csv", "--window", "9"], "missing.csv: No such file"),
        (["FOLDER", "--window", "21"], "--window is 21, expected at most the chunk size, 20"),
        (["FOLDER", "--queries", "0"], "--queries is 0"),
    ],
)
def test_what_cannot_be_forecast_is_one_line(
    arguments: list[str], words: str, folder: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"TRACE": trace, "FOLDER": folder}
    assert main(["supply", *(names.get(argument, argument) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert words in error.splitlines()[-1] and "Traceback" not in error


def test_a_policy_that_iterates_is_measured_with_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(cameras=(Camera("front", SIDE, SIDE),), state_dim=STATE, sizes=SIZES)
    make_checkpoint("act", tmp_path / "c", options)
    for user in (inference, observations):
        monkeypatch.setattr(user, "define_policy", lambda checkpoint: IteratingPolicy(noise_per_step=True))
    arguments = ["supply", str(tmp_path / "c"), "--queries", "2", "--threads", "1", "--seed", "1"]
    for steps in ([], ["--num-steps", "6"]):
        assert main([*arguments, *steps]) == 0
        assert f"1 threads, {steps[-1] if steps else 4} steps" in capsys.readouterr().out
    assert main([*arguments, "--num-steps", "3"]) == 2
    assert "num_steps is 3: expected an even number" in capsys.readouterr().err


def test_steps_of_a_policy_of_one_pass_are_refused(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["supply", folder, "--queries", "2", "--num-steps", "3"]) == 2
    assert "the policy 'act' has no solver, it takes no num_steps" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["supply", folder, "--num-steps", "0"])
    assert "'0' is no number, expected 1 or more" in capsys.readouterr().err
