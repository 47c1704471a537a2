from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "language"))
pytest.importorskip("gguf")

import tiny_gguf
from small_checkpoints import small_options

from vla_simd_ros.benchmarks import passes, passes_plot
from vla_simd_ros.benchmarks.passes import FORMS, KEPT, SameSizes
from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.graph.blocks import BLOCK_BYTES

SIZES = (1, 4)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (passes, passes_plot):
        monkeypatch.setattr(module, "SIZES", SIZES)
    monkeypatch.setattr(passes, "_REPEATS", 1)
    return tiny_gguf.write(tmp_path / "tiny.gguf")


def test_every_form_is_measured_and_drawn(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, picture = tmp_path / "passes.json", tmp_path / "passes.png"
    command = ["bench", str(model), "--passes", "--threads", "1", "--isa", "portable"]
    assert main([*command, "--json", str(report), "--plot", str(picture)]) == 0

    text = capsys.readouterr().out
    values = json.loads(report.read_text())
    assert set(values["pass_ms"]) == set(FORMS) and values["isa"] == "portable"
    assert values["kept_tokens"] == KEPT
    for form in FORMS:
        assert set(values["pass_ms"][form]) == {str(tokens) for tokens in SIZES}
        assert f"| {form} " in text
        assert values["bounds"]["reading_ms"][form] > 0
    weights = values["weight_bytes"]
    assert weights["q4_0"] < weights["q4_1"] < weights["q8_0"] < weights["bfloat16"] < weights["float32"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("form", BLOCK_BYTES)
def test_weights_of_a_form_have_the_sizes_that_are_asked_for(form: str) -> None:
    source = SameSizes(form)
    assert source.shape("matrix", (6, 64)) == (6, 64)
    assert source.shape("odd", (6, 48)) == (6, 48)
    source.shape("norm", (64,))
    blocks = source.blocks("matrix")
    assert blocks is not None and blocks.shape == (6, 64) and blocks.form == form
    assert source.blocks("odd") is None and source.blocks("norm") is None
    assert source.tensor("odd").shape == (6, 48)
    np.testing.assert_array_equal(source.rows("norm", 0, 3), np.ones(3))


def test_passes_of_a_policy_that_spells_its_actions(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, report = tmp_path / "policy", tmp_path / "passes.json"
    make_checkpoint("impact_tokens", folder, small_options("impact_tokens", settings={"token_width": 48}))
    command = ["bench", str(folder), "--passes", "--threads", "1", "--isa", "portable"]
    assert main([*command, "--json", str(report)]) == 0
    values = json.loads(report.read_text())
    assert list(values["pass_ms"]) == ["stored", "int8"]
    # A row each for latent and state, 2 x 2 for each camera, and the longest instruction of 8 tokens.
    assert values["kept_tokens"] == 18
    assert 0 < values["weight_bytes"]["int8"] < values["weight_bytes"]["stored"]
    assert "18 tokens before each pass" in capsys.readouterr().out


def test_passes_need_something_that_decodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_checkpoint("act", tmp_path / "act", small_options("act"))
    assert main(["bench", str(tmp_path / "act"), "--passes"]) == 2
    assert "--passes measures what decodes tokens, and a policy 'act' computes" in capsys.readouterr().err
    assert main(["bench", str(tmp_path), "--plot", str(tmp_path / "a.png")]) == 2
    assert "--plot draws what --passes measures" in capsys.readouterr().err
