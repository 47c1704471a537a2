from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_act import SMALL

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.fidelity import check


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check") / "act"
    make_checkpoint("act", folder, Options(seed=3, cameras=(), env_state_dim=3, sizes=SMALL))
    return folder


def test_passes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert (
        main(["check", str(folder), "--reference", "float64", "--observations", "3", "--json", str(file)])
        == 0
    )

    out = capsys.readouterr().out
    assert "against float64" in out
    assert "pass: bound on max abs / largest is 2.000e-05" in out
    result = json.loads(file.read_text())
    assert result["passed"]
    assert result["first_departure"] is None
    (output,) = result["outputs"]
    assert output["shape"] == [4, 6]
    assert 0 < output["error_float64"]["relative"] <= output["bound"]


def test_the_bound_follows_the_convolution(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", str(folder), "--reference", "float64", "--observations", "1"]
    assert main([*arguments, "--convolution", "winograd4"]) == 0
    out = capsys.readouterr().out
    assert "convolution winograd4) against float64" in out
    assert "pass: bound on max abs / largest is 2.000e-05" in out
    assert main([*arguments, "--exact"]) == 0
    out = capsys.readouterr().out
    assert "convolution exact) against float64" in out
    assert "pass: bound on max abs / largest is 2.000e-06" in out


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check") / "seeing"
    cameras, narrow = (Camera("top", 64, 96),), {"backbone_width": 16}
    make_checkpoint("act", folder, Options(seed=3, cameras=cameras, sizes=SMALL, settings=narrow))
    return folder


def test_the_error_of_each_convolution(
    seeing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    arguments = ["check", str(seeing), "--reference", "float64", "--observations", "2", "--json", str(file)]
    assert main([*arguments, "--convolution", "winograd2"]) == 0
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line[:1] == "|"]
    found = {row[0]: row[1:] for row in rows[2:]}
    layers = json.loads(file.read_text())["convolutions"]
    assert list(found) == [layer["layer"] for layer in layers]
    assert len(found) == 20
    kinds = {kernel.split("_")[0] for kernel, *_ in found.values()}
    assert kinds == {"winograd2", "conv2d"}
    for kernel, absolute, relative, rms in found.values():
        computed_directly = kernel.startswith("conv2d")
        assert all((float(value) == 0) == computed_directly for value in (absolute, relative, rms))
        assert float(relative) < 1e-5
    assert main(arguments) == 0
    assert "Convolution" not in capsys.readouterr().out
    assert "convolutions" not in json.loads(file.read_text())


def test_a_policy_without_convolutions_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", str(folder), "--reference", "float64", "--observations", "1"]
    assert main([*arguments, "--exact"]) == 0
    assert "the policy has no convolutions" in capsys.readouterr().out


def test_exact_excludes_what_rounds_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder), "--exact", "--convolution", "winograd4"]) != 0
    error = capsys.readouterr().err
    assert "convolution='winograd4': expected one of exact, direct, flat, winograd2 with exact" in error


def test_trace_lists_the_tensors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", str(folder), "--reference", "float64", "--observations", "1", "--trace"]
    assert main(arguments) == 0

    out = capsys.readouterr().out
    assert "encoder.0.self_attn" in out
    assert "no tensor departs" in out


def test_a_wrong_reference_fails_and_exits_with_1(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong:
        def __init__(self, *args: object) -> None:
            self._inner = make_reference(*args)  # type: ignore[arg-type]

        def predict(self, observation: object) -> np.ndarray:
            return self._inner.predict(observation) * 1.001  # type: ignore[arg-type]

    make_reference = check.make_reference
    monkeypatch.setattr(check, "make_reference", Wrong)
    file = tmp_path / "result.json"
    assert main(["check", str(folder), "--reference", "float64", "--json", str(file)]) == 1

    out = capsys.readouterr().out
    assert "FAIL" in out
    # The engine is right, so that no tensor of its own programs is to blame.
    assert "no tensor departs" in out
    assert not json.loads(file.read_text())["passed"]


@pytest.mark.parametrize("count", ["0", "-1", "x"])
def test_number_of_observations(folder: Path, capsys: pytest.CaptureFixture[str], count: str) -> None:
    with pytest.raises(SystemExit):
        main(["check", str(folder), f"--observations={count}"])

    assert "expected 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", "x"])
def test_seed(folder: Path, capsys: pytest.CaptureFixture[str], seed: str) -> None:
    with pytest.raises(SystemExit):
        main(["check", str(folder), f"--seed={seed}"])

    assert f"'{seed}' is no seed, expected an integer, 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_an_instruction_set_that_is_not_there(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLA_SIMD_ISA", "mmx")
    assert main([command, str(folder)]) == 2
    assert capsys.readouterr().err.startswith("vla_simd: VLA_SIMD_ISA='mmx': unknown instruction set")


def test_threads_that_the_engine_cannot_have(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder), "--threads=-1"]) == 2
    assert capsys.readouterr().err == "vla_simd: threads=-1: expected 0 to 1024\n"


def test_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "absent")]) == 2
    assert capsys.readouterr().err.endswith("absent: no such folder\n")


def test_reference_of_another_policy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder), "--reference", "torch"]) == 2
    assert (
        "there is no reference 'torch' for policy 'act', expected one of lerobot, float64"
        in capsys.readouterr().err
    )


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with layers that are deep enough for int8."""
    folder = tmp_path_factory.mktemp("check") / "wide"
    sizes = {**SMALL, "dim_model": 32}
    make_checkpoint("act", folder, Options(seed=3, cameras=(), env_state_dim=3, sizes=sizes))
    return folder


@pytest.mark.parametrize(("limit", "code", "verdict"), [("0.5", 0, "pass"), ("1e-6", 1, "FAIL")])
def test_int8_is_reported_group_by_group(
    wide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str, code: int, verdict: str
) -> None:
    file = tmp_path / "int8.json"
    arguments = ["check", str(wide), "--reference", "float64", "--observations", "2", "--json", str(file)]
    assert main([*arguments, "--int8", "encoder,head", "--max-rms", limit]) == code
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line[:1] == "|"]
    names = [row[0] for row in rows]
    assert names[2:7] == ["encoder.attention", "encoder.ffn", "head", "together", "nothing"]
    assert ["head.actions", "head"] in [row[:2] for row in rows[9:]]
    assert f"{verdict}: relative RMS" in out
    result = json.loads(file.read_text())
    assert result["passed"] == (code == 0)
    assert [group["group"] for group in result["groups"]] == names[2:5]
    assert result["together"]["from_reference"]["rms"] > result["fp32"]["rms"]


def test_int8_beside_the_engine_itself(wide: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", str(wide), "--reference", "engine", "--observations", "1"]
    assert main([*arguments, "--int8", "head", "--groups-only", "--max-rms", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "| RMS from exact fp32 | max from exact fp32 |" in out and "layers that add most" not in out
    assert main(arguments) == 2
    assert "the reference 'engine' is for --int8" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "much"])
def test_an_allowed_error_is_a_number_above_zero(
    wide: Path, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["check", str(wide), "--int8", "head", f"--max-rms={limit}"])
    assert f"'{limit}' is no relative error, expected a number above 0" in capsys.readouterr().err
