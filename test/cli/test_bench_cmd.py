from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vla_simd_ros.benchmarks.agreement import TOLERANCES
from vla_simd_ros.benchmarks.backend import OURS, PEERS, RUNNERS
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli.__main__ import main

SMALL = {
    "dim_model": 64,
    "heads": 2,
    "feedforward": 96,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "chunk_size": 40,
}
FEW = ["--queries", "4", "--blocks", "2", "--warmup", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bench") / "act"
    cameras, narrow = (Camera("front", 64, 96),), {"backbone_width": 16}
    make_checkpoint("act", folder, Options(seed=1, cameras=cameras, sizes=SMALL, settings=narrow))
    return str(folder)


def test_alone_it_reports_itself(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "r.json"), "--markdown", str(tmp_path / "r.md")]
    assert main(["bench", folder, *FEW, "--isa", "portable", "--profile", *files]) == 0
    text = capsys.readouterr().out
    assert re.search(rf"\| {OURS} +\| fp32 ", text)
    assert "| backbone.front.layer4.1 " in text and "| conv2d " in text
    assert (tmp_path / "r.md").read_text() == text.removesuffix("\n")
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["policy"], report["isa"], report["threads"]) == ("act", "portable", 1)
    assert report["speedup_vs_fastest_peer"] is None
    (ours,) = report["results"]
    assert ours["n"] == 4 and 0 < ours["median_ms"] <= ours["p95_ms"] <= ours["p99_ms"]
    assert 0 < ours["departure"] < 1e-4
    assert report["protocol"]["cameras"] == {"front": "64x96"}
    assert sum(op["ms"] for op in report["profile"]) > 0


def test_convolution_is_a_choice(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    assert main(["bench", folder, *FEW, "--convolution", "winograd4", "--json", str(file)]) == 0
    (ours,) = json.loads(file.read_text())["results"]
    assert ours["details"]["convolution"] == "winograd4"


@pytest.mark.needs_torch
@pytest.mark.parametrize("peer", PEERS)
def test_each_peer_agrees_and_is_timed(peer: str, folder: str, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    assert main(["bench", folder, *FEW, "--peers", peer, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert [result["runner"] for result in report["results"]] == [OURS, peer]
    kind = "int8_peer" if report["results"][1]["precision"] == "int8" else "peer"
    assert report[f"fastest_{kind}"] == peer
    assert report[f"speedup_vs_fastest_{kind}"] == report["speedups"][peer]["ratio"] > 0
    tolerance = RUNNERS[peer].tolerance or TOLERANCES["fp32"]
    ours, theirs = (result["departure"] for result in report["results"])
    assert ours < TOLERANCES["fp32"] and theirs < tolerance


def test_kernels_of_a_checkpoint(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, picture = tmp_path / "k.json", tmp_path / "k.png"
    files = ["--json", str(file), "--roofline", str(picture)]
    assert main(["bench", folder, "--kernels", "--isa", "portable", *files]) == 0
    assert "FMA peak, portable" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    report = json.loads(file.read_text())
    assert report["isa"] == "portable" and report["ceilings"]["peaks"]["portable"] > 0
    layers = report["layers"]
    assert {"linear", "conv2d", "attention", "max_pool2d", "layer_norm"} <= {
        layer["kind"] for layer in layers
    }
    assert all(layer["alone_ms"] > 0 and layer["share_alone"] > 0 for layer in layers)
    choice = {layer["algorithm"] for layer in layers if layer["choice"]}
    assert choice >= {"direct", "winograd2", "winograd4"}
    used = {layer["algorithm"] for layer in layers if layer["choice"] and layer["in_query_ms"]}
    assert used and used <= choice
    head = next(layer for layer in layers if layer["shape"] == "40x64x6")
    assert head["narrow"] and head["reaches_target"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}", "--peers", "tvm"], "unknown peer 'tvm', expected some of torch-eager"),
        (["{folder}", "--int8", "text"], "int8 group 'text' is unknown, this policy has: backbone.conv"),
        (["{folder}", "--precision", "int8", "--int8", "auto"], "precision is int8 and int8 is 'auto'"),
        (["{folder}", "--soak", "5"], "soak of 5 s: expected at least 30 s"),
        (["{folder}", "--queries", "0"], "--queries is 0, expected at least 1"),
        (["{folder}", "--json", "/not/there/r.json"], "there is no folder /not/there"),
        (["{folder}", "--json", "/"], "cannot write /: it is a folder, expected a file"),
        (["{folder}", "--isa", "mmx"], "mmx"),
        (["{folder}", "--kernels", "--isa", "mmx"], "instruction set 'mmx' is not available here"),
        (["{folder}", "--roofline", "r.png"], "--roofline draws what --kernels measures, expected both"),
        (
            ["{folder}", "--load", "--settings", "t.json"],
            "--settings t.json is of no use with --ablate, --ker",
        ),
        (["{folder}", "--set", "waiting=idle"], "waiting='idle': expected one of active, passive"),
        (["{folder}", "--decoder", "jacobi"], "decoder jacobi: the policy 'act' decodes no tokens, it comp"),
        (["/not/there"], "/not/there: no such folder"),
        ([], "no checkpoint folder given; only --kernels can do without"),
    ],
)
def test_what_cannot_be_measured_is_said(
    arguments: list[str], message: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *(argument.format(folder=folder) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
