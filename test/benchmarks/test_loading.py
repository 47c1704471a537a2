from __future__ import annotations

import json
from pathlib import Path

import pytest

from vla_simd_ros.benchmarks.backend import BenchmarkError
from vla_simd_ros.benchmarks.loading import (
    STAGES,
    Loading,
    measure_loading,
    to_json,
    to_markdown,
    weight_bytes,
)
from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.executors.settings import EngineSettings

# Some hundred megabytes, most of them in linear layers.
SIZES = {"dim_model": 512, "feedforward": 4096, "chunk_size": 8, "encoder_layers": 4, "decoder_layers": 2}
TEXT = {"text_config.d_model": 64, "text_config.num_layers": 1}
MIB = 1 << 20


@pytest.mark.parametrize(
    ("dtype", "convolution", "most"),
    [("fp32", "winograd2", 1.3), ("fp16", "direct", 1.3), ("bf16", "direct", 0.75)],
)
def test_weights_are_in_memory_once(tmp_path: Path, dtype: str, convolution: str, most: float) -> None:
    """Peak memory is bounded by the weights in float32, and by little more than half of them where bfloat16
    ones stay so: raw, folded and packed copies of all of them are never there at once."""
    options = Options(cameras=(Camera("front", 64, 64),), sizes=SIZES, settings=TEXT, dtype=dtype)
    folder = tmp_path / "impact"
    make_checkpoint("impact", folder, options)
    weights = weight_bytes(load_checkpoint(folder))
    assert weights > 150 * MIB
    settings = EngineSettings(threads=2, convolution=convolution)
    (load,) = measure_loading(folder, "go", settings, 1, lambda _: None)
    assert load.imported_bytes < load.resident_bytes <= load.peak_bytes
    assert load.peak_bytes - load.imported_bytes < most * weights + 32 * MIB
    assert load.threads == 2 and len(load.stages_ms) == len(STAGES) and min(load.stages_ms) > 0


def test_a_load_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"loading .*: .*CheckpointError: .*config\.json: no such file"):
        measure_loading(tmp_path, "go", EngineSettings(), 1, lambda _: None)


def test_reports_hold_the_median_and_the_worst() -> None:
    loads = [
        Loading([10.0, 20.0, 30.0, 40.0, scale * 50.0], 50 * MIB, scale * 100 * MIB, 90 * MIB, "avx2", 2)
        for scale in (1, 3, 2)
    ]
    report = to_json(loads, 150 * MIB, {"machine": "m"})
    assert (report["first_action_ms"], report["peak_ratio"], report["machine"]) == (200.0, 2.0, "m")
    assert json.loads(json.dumps(report))["loads"][1]["stages_ms"][4] == 150.0
    text = to_markdown(loads, 150 * MIB)
    rows = {line.split("|")[1].strip(): line.split("|")[3:5] for line in text.splitlines() if line[:1] == "|"}
    assert [cell.strip() for cell in rows["query"]] == ["100", "150"]
    assert [cell.strip() for cell in rows["first action"]] == ["200", "250"]
    assert "315 MB at most, 94 MB after the query; weights 157 MB in float32, ratio 2.00" in text
