"""ACT against LeRobot's own, full-size and in the corners of its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options

SMALL = {
    "dim_model": 32,
    "heads": 4,
    "feedforward": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "chunk_size": 8,
}
CAMERAS = (Camera("front", 64, 96), Camera("wrist", 64, 96))
ALOHA = Options(seed=1, cameras=(Camera("top", 480, 640),), state_dim=14, action_dim=14)
SO101 = Options(seed=2)


@pytest.mark.parametrize("options", [ALOHA, SO101], ids=["aloha", "so101"])
def test_full_size(bench: Any, options: Options) -> None:
    assert bench.compare("act", options, "lerobot").passed


@pytest.mark.parametrize("mode", ["MEAN_STD", "MIN_MAX", "QUANTILES", "IDENTITY"])
def test_normalization_modes(bench: Any, mode: str) -> None:
    settings = {f"normalization_mapping.{kind}": mode for kind in ("STATE", "ACTION", "VISUAL")}
    options = Options(seed=3, cameras=CAMERAS, sizes=SMALL, settings=settings)

    assert bench.compare("act", options, "lerobot").passed


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers(bench: Any, pre_norm: bool, activation: str) -> None:
    sizes = {**SMALL, "pre_norm": pre_norm}
    settings = {"feedforward_activation": activation}
    options = Options(seed=4, cameras=CAMERAS, env_state_dim=3, sizes=sizes, settings=settings)

    assert bench.compare("act", options, "lerobot").passed


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"cameras": CAMERAS, "state_dim": 0}, id="cameras"),
        pytest.param({"cameras": (), "state_dim": 0, "env_state_dim": 3}, id="environment"),
    ],
)
def test_without_a_state(bench: Any, options: dict[str, Any]) -> None:
    assert bench.compare("act", Options(seed=7, sizes=SMALL, **options), "lerobot").passed


@pytest.mark.parametrize("backbone", ["resnet18", "resnet34", "resnet50"])
def test_backbones(bench: Any, backbone: str) -> None:
    options = Options(seed=5, cameras=CAMERAS[:1], sizes={**SMALL, "backbone": backbone})

    assert bench.compare("act", options, "lerobot").passed


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_stored_types(bench: Any, dtype: str) -> None:
    assert bench.compare("act", Options(seed=6, cameras=CAMERAS, sizes=SMALL, dtype=dtype), "lerobot").passed
