from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "language"))
pytest.importorskip("gguf")

import tiny_gguf

from vla_simd_ros.benchmarks.language_prompts import make_prompts
from vla_simd_ros.cli.__main__ import main


def test_prompts_have_as_many_tokens_as_asked_for_and_differ(tmp_path: Path) -> None:
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    for tokens in (1, 7, 3000):
        prompts = make_prompts(path, 4, tokens, 5)
        assert [(len(prompt.tokens), prompt.count) for prompt in prompts] == [(tokens, 5)] * 4
    assert len({prompt.tokens for prompt in make_prompts(path, 4, 7, 5)}) == 4


def test_a_language_model_is_measured_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    few = ["--queries", "2", "--blocks", "1", "--threads", "1", "--prompt-tokens", "9", "--new-tokens", "3"]
    assert main(["bench", str(path), *few]) == 0
    assert "| vla_simd |" in capsys.readouterr().out
    assert main(["bench", str(path), *few, "--peers", "openvino"]) == 2
    assert "unknown peer 'openvino' of a language model" in capsys.readouterr().err
    assert main(["bench", str(path), "--new-tokens", "1"]) == 2
    assert "--new-tokens is 1, expected at least 2" in capsys.readouterr().err
