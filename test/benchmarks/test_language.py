from __future__ import annotations

import re

import pytest

from vla_simd_ros.benchmarks import language
from vla_simd_ros.benchmarks.backend import OURS, BenchmarkError, RunnerSpec
from vla_simd_ros.benchmarks.interleave import make_plan
from vla_simd_ros.benchmarks.language import DECODE, PREFILL, LanguageOptions, LanguageResult, Prompt
from vla_simd_ros.executors.settings import EngineSettings

PROMPTS = [Prompt((1, 2, 3, 4), 3), Prompt((5, 6, 7, 8), 3)]
OPTIONS = LanguageOptions("model.gguf", ("llamacpp",), make_plan(4, 2), EngineSettings(threads=2))
MACHINE = {
    "cpu": "a CPU",
    "load_average_before": 0.0,
    "date": "today",
    "command": "vla_simd bench model.gguf",
}


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> LanguageResult:
    """Of two backends of which one is slower and writes something else behind the second prompt."""
    runners = {
        OURS: RunnerSpec("fake_backends:Talking"),
        "llamacpp": RunnerSpec("fake_backends:SlowlyTalking"),
    }
    monkeypatch.setattr(language, "LANGUAGE_RUNNERS", runners)
    said: list[str] = []
    measured = language.run_language_bench(OPTIONS, PROMPTS, said.append)
    order = [line.rpartition(" ")[2] for line in said if line.startswith("block 1")]
    assert order == [OURS, "llamacpp", "llamacpp", OURS]
    return measured


def test_stages_are_compared_block_by_block(result: LanguageResult) -> None:
    assert result.threads == 2
    assert result.blocks_ms[OURS] == {PREFILL: [[8.0, 8.0]] * 2, DECODE: [[2.0, 2.0]] * 2}
    assert result.tokens_per_second(OURS, PREFILL) == 500.0
    assert result.tokens_per_second(OURS, DECODE) == 500.0
    assert result.comparison("llamacpp", PREFILL).ratio == 2.0
    assert result.comparison("llamacpp", DECODE).ratio == 3.0
    assert result.same_beginning == {"llamacpp": [1.0, 0.5]}


def test_the_report_has_conditions_and_ratios(result: LanguageResult) -> None:
    model = {"file": "model.gguf", "sha256": "0"}
    report = language.language_json(result, OPTIONS, model, MACHINE)
    assert report["speedups"]["llamacpp"]["decode"]["ratio"] == 3.0
    assert report["prompt_tokens"] == 4 and report["new_tokens"] == 3
    assert [entry["runner"] for entry in report["results"]] == [OURS, "llamacpp"]
    text = language.language_markdown(result, OPTIONS, model, MACHINE)
    assert re.search(r"\| llamacpp +\| +250\.0 \| +2\.00 \(2\.00 to 2\.00\) \| +166\.7 \| +3\.00", text)
    assert "The texts of llamacpp begin as this engine's: 100%, 50% of each." in text


def test_unknown_peers_are_refused() -> None:
    with pytest.raises(BenchmarkError, match="unknown peer 'onnxruntime' of a language model"):
        language.check_language_peers(["onnxruntime"])
    with pytest.raises(BenchmarkError, match="more than once"):
        language.check_language_peers(["llamacpp", "llamacpp"])
