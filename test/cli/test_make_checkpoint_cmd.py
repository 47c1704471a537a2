from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.cli.__main__ import main

SIZES = {
    "dim-model": 16,
    "heads": 2,
    "feedforward": 16,
    "encoder-layers": 1,
    "decoder-layers": 1,
    "chunk-size": 4,
}
SMALL = [f"--{name}={value}" for name, value in SIZES.items()]


def config(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return content


def test_every_option_reaches_the_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "act"
    sizes = {"state-dim": 7, "env-state-dim": 2, "action-dim": 5, "image-size": "32x48"}
    robot = ["--cameras", "top:40x64,wrist", *(f"--{name}={value}" for name, value in sizes.items())]
    others = ["--seed", "9", "--dtype", "bf16", "--pre-norm", "--set", "kl_weight=5", "--set", "license=mit"]
    assert main(["make-checkpoint", "act", "--out", str(out), *robot, *SMALL, *others]) == 0

    made = config(out)
    assert [f["shape"] for f in made["input_features"].values()] == [[3, 40, 64], [3, 32, 48], [7], [2]]
    assert made["output_features"]["action"]["shape"] == [5]
    assert (made["chunk_size"], made["pre_norm"], made["kl_weight"], made["license"]) == (4, True, 5, "mit")
    assert load_checkpoint(out).weights.tensor("model.action_head.weight", (5, 16)).any()
    assert f"{out}: random act of 11.2 M parameters" in capsys.readouterr().out


def test_impact_has_the_same_command_line(tmp_path: Path) -> None:
    out = tmp_path / "impact"
    text = [f"text_config.{k}" for k in ("num_layers=1", "vocab_size=500", "d_model=16", "d_ff=16", "d_kv=8")]
    settings = [argument for value in text for argument in ("--set", value)]
    arguments = ["make-checkpoint", "impact", "--out", str(out), "--cameras", "top:32x32", *SMALL, *settings]
    assert main(arguments) == 0

    checkpoint = load_checkpoint(out)
    assert checkpoint.type == "impact"
    assert checkpoint.config["text_config"]["d_ff"] == 16
    assert checkpoint.tokenizer().encode("put the tape into the box")[-1] == 1


def test_no_cameras(tmp_path: Path) -> None:
    out = tmp_path / "act"
    assert (
        main(
            ["make-checkpoint", "act", "--out", str(out), "--cameras", "none", "--env-state-dim", "3", *SMALL]
        )
        == 0
    )
    assert list(config(out)["input_features"]) == ["observation.state", "observation.environment_state"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--image-size", "480"], "'480' is no image size, expected HEIGHTxWIDTH"),
        (["--cameras", "front:12"], "'12' is no image size"),
        (["--image-size", "\u00b2x3"], "'\u00b2x3' is no image size"),
        (["--cameras", "front,,"], "has a camera without a name"),
        (["--cameras", "front=32x32"], "'front=32x32' is no name of a camera"),
        (["--set", "chunk_size"], "'chunk_size' is no setting, expected FIELD=VALUE"),
        (["--dtype", "int3"], "invalid choice: 'int3'"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["make-checkpoint", "act", "--out", str(tmp_path / "x"), *arguments])

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--set", "nope=1"], "config.json has no field 'nope'"),
        (["--set", "latent_dim=0"], "latent_dim is 0, expected 1 or more"),
        (["--set", "n_vae_encoder_layers=-1"], "n_vae_encoder_layers is -1, expected 1 or more"),
        (["--cameras", "a,a"], "camera 'a' is named twice"),
        (["--dim-model", "30"], "dim_model is 30, expected a multiple of 8 heads"),
    ],
)
def test_values_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(["make-checkpoint", "act", "--out", str(tmp_path / "x"), *arguments]) == 2
    assert capsys.readouterr().err == f"vla_simd: {complaint}\n"
