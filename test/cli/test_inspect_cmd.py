from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli import inspect_cmd
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.sim.demo_policy import SMALL

SIZES: dict[str, Any] = {"dim_model": 16, "heads": 2, "feedforward": 24, "chunk_size": 4}
LAYERS = {"encoder_layers": 1, "decoder_layers": 1}
HEADER = ["op", "result", "shape", "lifetime", "block", "group", "precision", "FLOP", "bytes", "kernel"]
TEXT = {
    "text_config.d_model": 16,
    "text_config.d_kv": 8,
    "text_config.num_layers": 1,
    "text_config.num_heads": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "impact"
    options = Options(cameras=(Camera("top", 32, 48),), sizes={**SIZES, **LAYERS}, settings=TEXT)
    make_checkpoint("impact", folder, options)
    return folder


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    parser = argparse.ArgumentParser()
    inspect_cmd.add_parser(parser.add_subparsers())
    assert inspect_cmd.run(parser.parse_args(["inspect", *arguments])) == 0
    return capsys.readouterr().out.splitlines()


def row(lines: list[str], name: str) -> list[str]:
    (found,) = [line.split() for line in lines if name in line.split()]
    return found


def test_every_program_is_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = inspect(capsys, str(folder), "--tokens", "3")
    titles = [line.split(":")[0] for line in lines if "given:" in line]
    assert titles == ["PROCESS", "EPISODE", "QUERY"], "the step program is empty"
    headers = [line.split() for line in lines if line.startswith("op ")]
    assert headers == 3 * [HEADER]
    stem = row(lines, "backbone.top.stem.relu")
    assert stem[0] == "conv2d+bias+relu"
    assert stem[2:5] == ["16x24x64", "QUERY", "backbone.top.stem"]
    assert stem[5:7] == ["backbone.conv", "fp32"]
    assert stem[7] == f"{16 * 24 * 64 * (2 * 3 * 49 + 2):,}"
    assert stem[8] == f"{4 * (32 * 48 * 3 + 64 * 147 + 64 + 16 * 24 * 64):,}"
    assert stem[9].startswith("winograd4_")
    assert row(lines, "backbone.top.stem.pool")[5:7] == ["-", "-"]


def spoil_last_value(path: Path) -> None:
    tensors = load_file(path)
    tensors["model.action_head.bias"][-1] = np.nan
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("tokenizer.json", lambda path: path.write_text("{}"), "tokenizer.json: model type is None"),
        ("model.safetensors", spoil_last_value, "NaN or infinite"),
    ],
)
def test_damage_shows(folder: Path, tmp_path: Path, name: str, spoil: Any, message: str) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    spoil(tmp_path / "copy" / name)
    parser = argparse.ArgumentParser()
    inspect_cmd.add_parser(parser.add_subparsers())
    with pytest.raises(CheckpointError, match=message):
        inspect_cmd.run(parser.parse_args(["inspect", str(tmp_path / "copy")]))


def test_fusions_and_views_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = inspect(capsys, str(folder), "--tokens", "3")
    assert row(lines, "backbone.top.layer1.1.film")[0] == "conv2d+bias+residual+relu+film"
    assert row(lines, "encoder.0.self_attn.q+k")[0] == "linear+bias+residual"
    assert row(lines, "encoder.0.self_attn.q")[-1] == "view"
    assert row(lines, "decoder.0.self_attn.attention")[-1] == "folded"
    assert row(lines, "postprocess.action")[0] == "add"


def test_the_choice_of_convolutions_shows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = inspect(capsys, str(folder), "--tokens", "3", "--convolution", "winograd2")
    assert row(lines, "backbone.top.layer1.1.film")[-1].startswith("winograd2_")
    assert row(lines, "backbone.top.stem.relu")[-1].startswith("conv2d_")


def test_totals_come_last(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = inspect(capsys, str(folder), "--tokens", "3")
    totals = lines[lines.index("total") + 1 :]
    assert [line.split()[0] for line in totals[:4]] == ["PROCESS", "EPISODE", "QUERY", "STEP"]
    assert totals[3].split()[1:] == ["0", "operations,", "0", "FLOP,", "0", "B", "moved"]
    assert totals[4].startswith("  constants of the runtime programs: ")


@pytest.mark.parametrize(
    ("arguments", "tokens"), [([], 32), (["--tokens", "5"], 5), (["--instruction", "go"], None)]
)
def test_the_instruction_s_length_can_be_chosen(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], tokens: int | None
) -> None:
    from vla_simd_ros.checkpoints import load_checkpoint

    expected = tokens or len(load_checkpoint(folder).tokenizer().encode("go"))
    lines = inspect(capsys, str(folder), *arguments)
    assert row(lines, "tokens.text")[2] == f"{expected}x16"


def test_an_impossible_length_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GraphError, match="an instruction of 33 tokens, expected 1 to 32"):
        inspect(capsys, str(folder), "--tokens", "33")


def test_a_policy_without_instruction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(cameras=(), env_state_dim=3, sizes={**SIZES, **LAYERS})
    make_checkpoint("act", tmp_path / "act", options)
    titles = [line.split(":")[0] for line in inspect(capsys, str(tmp_path / "act")) if "given:" in line]
    assert titles == ["PROCESS", "QUERY"]
    with pytest.raises(GraphError, match="act takes no instruction, got 3 tokens"):
        inspect(capsys, str(tmp_path / "act"), "--tokens", "3")


def test_steps_are_said_to_be_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = SMALL["smolvla"]
    cameras = (Camera("front", 32, 48),)
    make_checkpoint(
        "smolvla", tmp_path / "c", Options(cameras=cameras, sizes=made.sizes, settings=made.settings)
    )
    lines = inspect(capsys, str(tmp_path / "c"))
    assert any(line.startswith("STEP: ") and "sample" in line for line in lines)
    (total,) = (line for line in lines if line.startswith("  STEP"))
    assert total.endswith(f"{made.settings['num_steps']} times a query")
    groups = [line.split()[0] for line in lines[lines.index("groups of layers for --int8") + 1 :] if line]
    assert {"vision.attention", "vision.ffn", "connector", "expert.attention", "expert.ffn"} <= set(groups)
