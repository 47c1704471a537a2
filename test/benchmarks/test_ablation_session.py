from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.benchmarks.ablation_session import AblationTask, measure_ablation
from vla_simd_ros.benchmarks.consistency import LEAST_PAIRS, Pair, Verdict, judge
from vla_simd_ros.benchmarks.interleave import Plan
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.executors.settings import EngineSettings


class InstantRuns:
    """Stands in for SettingRuns: every A takes 1 ms, every B 2 ms."""

    def __init__(
        self, checkpoint: str, instruction: str, observations: list[Any], *_: object, decoder: DecoderOptions
    ) -> None:
        assert Path(checkpoint).is_dir() and instruction == "go" and observations
        assert decoder == DEFAULT_OPTIONS, "there are no tokens to decode"

    def __enter__(self) -> InstantRuns:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def details(self, settings: EngineSettings) -> dict[str, str]:
        return {"threads": "2", "isa": "fake"}

    def compare(self, a: EngineSettings, b: EngineSettings) -> tuple[Verdict, list[Pair]]:
        pairs = [Pair(1.0, 2.0, 2.0, 1.0)] * LEAST_PAIRS
        return judge(pairs), pairs


def test_the_report_holds_conditions_table_and_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"dim_model": 16, "heads": 2, "feedforward": 24, "encoder_layers": 1, "decoder_layers": 1}
    make_checkpoint("act", tmp_path / "act", Options(cameras=(Camera("top", 32, 48),), sizes=sizes))
    monkeypatch.setattr("vla_simd_ros.benchmarks.ablation_session.SettingRuns", InstantRuns)
    base = EngineSettings(spin_us=100)
    task = AblationTask(str(tmp_path / "act"), "go", base, Plan(LEAST_PAIRS, 2), warmup=3)
    report, text = measure_ablation(task, lambda _: None)
    assert (
        f"- {LEAST_PAIRS} pairs A-B-B-A for every setting, 4 queries of each value a pair, 3 to warm up"
        in text
    )
    assert "policy: act;" in text and "ISA: fake; threads: 2" in text
    assert "| Thread waiting   | passive / active " in text and "A +100.0" in text
    loaded = json.loads(json.dumps(report))
    assert loaded["base"]["spin_us"] == 100 and len(loaded["effects"]) == 11
    assert loaded["checkpoint"]["sha256 config.json"] and loaded["machine"]["cpu"]
