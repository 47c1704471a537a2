from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from vla_simd_ros.cli import train_cmd
from vla_simd_ros.cli.__main__ import main


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    train_cmd.add_parser(parser.add_subparsers())
    return parser.parse_args(["train", *arguments])


def test_only_what_is_said_becomes_a_setting() -> None:
    args = parse("impact", "--data", "d", "--out", "o", "--steps", "7", "--precision", "bf16")
    assert train_cmd.asked_recipe(args) == {"steps": 7, "precision": "bf16"}
    assert train_cmd.asked_rates(args) == {}


def test_the_backbone_learns_as_fast_as_the_rest_unless_said() -> None:
    both = parse("act", "--data", "d", "--out", "o", "--lr", "1e-3")
    assert train_cmd.asked_rates(both) == {"optimizer_lr": 1e-3, "optimizer_lr_backbone": 1e-3}
    apart = parse("act", "--data", "d", "--out", "o", "--lr", "1e-3", "--lr-backbone", "1e-4")
    assert train_cmd.asked_rates(apart) == {"optimizer_lr": 1e-3, "optimizer_lr_backbone": 1e-4}


def write_dataset(folder: Path) -> None:
    from vla_simd_ros.datasets.layout import Feature
    from vla_simd_ros.datasets.writer import DatasetWriter

    picture, vector = Feature("image", (32, 32, 3)), Feature("float32", (2,))
    features = {"observation.images.top": picture, "observation.state": vector, "action": vector}
    writer = DatasetWriter.create(folder, fps=10, features=features)
    generator = np.random.default_rng(0)
    for _ in range(3):
        frames = [
            {
                "observation.images.top": generator.integers(0, 255, (32, 32, 3), np.uint8),
                "observation.state": generator.normal(size=2).astype(np.float32),
                "action": generator.normal(size=2).astype(np.float32),
            }
            for _ in range(4)
        ]
        writer.add_episode(frames, "move")
    writer.flush()


@pytest.mark.needs_torch
def test_what_is_wrong_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "nowhere")
    assert main(["train", "act", "--data", missing, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.startswith(f"vla_simd: {missing}")


@pytest.mark.needs_torch
def test_a_dataset_becomes_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'vla_simd_ros[dataset]'")
    write_dataset(tmp_path / "data")
    recipe = tmp_path / "recipe.json"
    sizes = {"backbone_width": 8, "dim_model": 16, "n_heads": 2, "dim_feedforward": 16, "chunk_size": 3}
    layers = dict.fromkeys(("n_encoder_layers", "n_decoder_layers", "n_vae_encoder_layers"), 1)
    recipe.write_text(json.dumps({"settings": {**sizes, **layers}, "training": {"batch_size": 4}}))
    arguments = ["train", "act", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run")]
    arguments += ["--config", str(recipe), "--steps", "2", "--set", "chunk_size=2", "--threads", "1"]

    assert main(arguments) == 0
    assert "act after 2 steps" in capsys.readouterr().out
    record = json.loads((tmp_path / "run" / "train_config.json").read_text())
    assert record["settings"]["chunk_size"] == 2
    assert record["training"] | {"steps": 2, "batch_size": 4} == record["training"]
    assert (tmp_path / "run" / "pretrained_model" / "model.safetensors").is_file()
    assert main([*arguments, "--resume", "--steps", "3"]) == 0


@pytest.mark.needs_torch
def test_action_tokens_need_an_encoder_or_a_teacher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(policy: str, *options: str) -> str:
        given = ["--data", "d", "--out", str(tmp_path / "run"), *options]
        assert main(["train", policy, *given]) == 2
        return capsys.readouterr().err

    one_of = "vla_simd: impact_tokens: expected one of --init IMPACT and --distill TEACHER\n"
    assert refused("impact_tokens") == one_of
    assert refused("impact_tokens", "--init", "a", "--distill", "b") == one_of
    assert "--image-size: impact_tokens takes a trained encoder" in refused(
        "impact_tokens", "--init", "a", "--image-size", "8x8"
    )
    assert "--distill: is for impact_tokens, the policy is act" in refused("act", "--distill", "b")


def test_settings_of_distillation_are_part_of_the_recipe() -> None:
    args = parse("impact_tokens", "--data", "d", "--out", "o", "--distill", "t", "--omega", "2")
    assert train_cmd.asked_recipe(args) == {"omega": 2.0}


@pytest.mark.needs_torch
def test_a_run_is_held_beside_an_earlier_one_of_the_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'vla_simd_ros[dataset]'")
    write_dataset(tmp_path / "data")
    sizes = {"backbone_width": 8, "dim_model": 16, "n_heads": 2, "dim_feedforward": 16, "chunk_size": 3}
    layers = dict.fromkeys(("n_encoder_layers", "n_decoder_layers", "n_vae_encoder_layers"), 1)
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"settings": {**sizes, **layers}}))

    def train(name: str, *more: str) -> int:
        own = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / name), "--config", str(recipe)]
        return main(["train", "act", *own, "--steps", "4", "--batch-size", "4", "--log-every", "2", *more])

    assert train("first", "--query-threshold", "2") == 0
    first = tmp_path / "first"
    written = json.loads((first / "pretrained_model" / "execution.json").read_text())
    assert written == {"query_pacing": "on_demand", "query_threshold": 2}
    # The log that went out with the policy is what is followed.
    log = first / "pretrained_model" / "log.csv"
    assert log.read_text() == (first / "log.csv").read_text()
    assert train("again", "--follow", str(log), "--threads", "1") == 0
    assert "4 of 4 losses within 15% of the earlier run" in capsys.readouterr().out
    assert not (tmp_path / "again" / "pretrained_model" / "execution.json").exists()
    assert train("other", "--lr", "0.1", "--follow", str(log), "--follow-within", "0.01") == 1
