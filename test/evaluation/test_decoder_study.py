"""A study of decoders on a random policy, from the command to the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.decoder_study import CONSISTENCY, FINE_TUNED, TEACHER, Arm, StudyRequest
from vla_simd_ros.evaluation.world import EvaluationError

SIZES = {"dim_model": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "chunk_size": 3}
SETTINGS = {
    "backbone_width": 4,
    "action_bins": 12,
    "token_width": 16,
    "n_token_layers": 1,
    "token_heads": 2,
    "token_kv_heads": 2,
    "token_feedforward": 16,
    "text_config.model_type": "bert",
    "text_config.vocab_size": 300,
    "text_config.hidden_size": 12,
    "text_config.num_hidden_layers": 1,
    "text_config.num_attention_heads": 2,
    "text_config.intermediate_size": 16,
}


def make(folder: Path, seed: int, chunk: int = 3) -> Path:
    options = Options(
        seed=seed,
        cameras=(Camera("front", 32, 32),),
        state_dim=6,
        action_dim=6,
        sizes={**SIZES, "chunk_size": chunk},
        settings=SETTINGS,
    )
    make_checkpoint("impact_tokens", folder, options)
    return folder


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("study") / "teacher", 1)


def test_one_command_prints_both_tables(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    student, file = make(tmp_path / "student", 2), tmp_path / "study.json"
    options = ["--consistency", str(student), "--fine-tuned", str(teacher), "--episodes", "2"]
    options += ["--seconds", "0.4", "--observations", "3", "--repeats", "1", "--threads", "1"]
    options += ["--sigmas", "0.6,0.5", "--json", str(file)]
    assert main(["decoders", str(teacher), *options]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines if line] == [
        "Parallel decoding", "-" * 17, "no", *["Jacobi"] * 4,
        "Threshold", "-" * 11, "sigma = 0.6", "sigma = 0.5",
    ]  # fmt: skip
    written = json.loads(file.read_text())
    rows = written["rows"]
    assert [(row["distillation"], row["decoder"]["decoder"]) for row in rows] == [
        ("none", "autoregressive"),
        ("none", "jacobi"),
        ("autoregressive only", "jacobi"),
        ("consistency", "jacobi"),
        ("consistency", "early_exit"),
        ("consistency", "early_exit"),
    ]
    assert all(len(row["episodes"]) == 2 and len(row["observations"]["passes"]) == 3 for row in rows)
    assert rows[0]["observations"]["passes"] == [18] * 3
    # The same policy under another name: the same passes and the same episodes.
    assert rows[1]["observations"]["passes"] == rows[2]["observations"]["passes"]
    assert rows[1]["episodes"] == rows[2]["episodes"] == rows[0]["episodes"]
    assert set(written["measured_with"]["checkpoints"]) == {TEACHER, FINE_TUNED, CONSISTENCY}


def test_rows_of_a_study(teacher: Path) -> None:
    repeated = StudyRequest(teacher, teacher, initialization="repeat")
    assert {arm.decoder.initialization for arm in repeated.arms} == {"repeat"}
    request = StudyRequest(teacher, teacher, sigma=0.5, sigmas=(0.5, 0.4))
    assert request.arms == (
        Arm(TEACHER, DecoderOptions("autoregressive")),
        Arm(TEACHER, DecoderOptions("jacobi")),
        Arm(CONSISTENCY, DecoderOptions("jacobi")),
        Arm(CONSISTENCY, DecoderOptions("early_exit", 0.5)),
        Arm(CONSISTENCY, DecoderOptions("early_exit", 0.4)),
    )


def test_what_cannot_be_compared_is_one_line(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*options: str) -> str:
        assert main(["decoders", str(teacher), *options]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    other = make(tmp_path / "other", 1, chunk=4)
    assert "takes and gives something else" in refused("--consistency", str(other))
    assert "thresholds 'a': expected numbers" in refused("--consistency", "x", "--sigmas", "a")
    assert "sigma is 1.5, expected a probability" in refused("--consistency", "x", "--sigma", "1.5")
    missing = tmp_path / "nowhere" / "file.json"
    assert "there is no folder" in refused("--consistency", "x", "--json", str(missing))
    with pytest.raises(EvaluationError, match="0 repeats, expected at least 1"):
        StudyRequest(teacher, teacher, repeats=0)


def test_a_policy_without_tokens_is_refused(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "act"
    options = Options(seed=0, cameras=(Camera("front", 32, 32),), sizes={**SIZES, "decoder_layers": 1})
    make_checkpoint("act", plain, options)
    assert main(["decoders", str(teacher), "--consistency", str(plain)]) == 2
    assert "'act' spells no actions, expected a policy that does" in capsys.readouterr().err
