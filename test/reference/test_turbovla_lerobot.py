"""TurboVLA against the packages of LeRobot's policy: full-size, in the corners of its configuration, and from
folders that they have written."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DINOv3ViTConfig, DINOv3ViTModel

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options
from vla_simd_ros.checkpoints.synthesis.wordpiece_vocabulary import TOKENIZER_SETTINGS, bert_tokenizer
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.check import compare

FORMS = ["turbovla", "turbovla_so101"]
TEXT = "pick up the red block and put it into the box"
SIZES = {"dim_model": 32, "heads": 4, "feedforward": 64, "encoder_layers": 2, "decoder_layers": 2}
BACKBONES: dict[str, Any] = {
    "image_size": 64,
    "vision_config.hidden_size": 48,
    "vision_config.num_hidden_layers": 3,
    "vision_config.num_attention_heads": 3,
    "text_config.hidden_size": 32,
    "text_config.num_hidden_layers": 2,
    "text_config.num_attention_heads": 2,
    "text_config.intermediate_size": 48,
}
DINOV3 = {**BACKBONES, "vision_config.intermediate_size": 80}
DINOV2 = {**BACKBONES, "vision_config.mlp_ratio": 3}
CAMERAS = (Camera("front", 64, 96), Camera("wrist", 64, 64), Camera("side", 120, 90))


def test_full_size(bench: Any) -> None:
    """Once: both forms are one network."""
    assert bench.compare("turbovla", Options(seed=1), "lerobot", TEXT).passed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cameras", [1, 2, 3])
def test_cameras_and_joints(bench: Any, form: str, cameras: int) -> None:
    sizes = {**SIZES, "chunk_size": 3 * cameras}
    options = Options(
        seed=2, cameras=CAMERAS[:cameras], state_dim=14, action_dim=14, sizes=sizes, settings=DINOV3
    )
    assert bench.compare(form, options, "lerobot", TEXT).passed


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": 256},
        {"feedforward_activation": "gelu", "max_language_tokens": 5},
        {"vision_config.patch_size": 8, "vision_config.num_register_tokens": 0},
        {"vision_config.use_gated_mlp": True, "vision_config.hidden_act": "silu"},
        {"vision_config.key_bias": True, "vision_config.rope_theta": 30.0},
        {"vision_hidden_state": "before_norm"},
        {"normalization_mapping.VISUAL": "MEAN_STD", "normalization_mapping.STATE": "QUANTILES"},
        {"normalization_mapping.VISUAL": "MIN_MAX", "normalization_mapping.ACTION": "MIN_MAX"},
    ],
    ids=str,
)
def test_settings(bench: Any, settings: dict[str, Any]) -> None:
    options = Options(seed=3, cameras=CAMERAS[:2], sizes=SIZES, settings={**DINOV3, **settings})
    assert bench.compare("turbovla", options, "lerobot", TEXT).passed


def test_the_two_hidden_states_of_transformers() -> None:
    """What "before_norm" stands for: the last of all hidden states, since 4.57.2 not the normalized one."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    model = DINOv3ViTModel(DINOv3ViTConfig(**sizes, num_register_tokens=4)).eval()
    torch.nn.init.normal_(model.norm.bias)
    with torch.no_grad():
        out = model(torch.randn(1, 3, 64, 64), output_hidden_states=True)
        before = out.hidden_states[-1]
        torch.testing.assert_close(model.norm(before), out.last_hidden_state)
    assert (before - out.last_hidden_state).abs().max() > 0.1


@pytest.mark.parametrize("learned_for", [64, 112, 48])
def test_dinov2(bench: Any, learned_for: int) -> None:
    sizes, settings = {**SIZES, "backbone": "dinov2"}, {**DINOV2, "vision_config.image_size": learned_for}
    options = Options(seed=4, cameras=CAMERAS[:2], sizes=sizes, settings=settings)
    assert bench.compare("turbovla", options, "lerobot", TEXT).passed


@pytest.mark.parametrize("text", ["", "put", "an instruction that is longer than thirty-two tokens " * 4])
def test_instructions(bench: Any, text: str) -> None:
    options = Options(seed=5, cameras=CAMERAS[:1], state_dim=0, sizes=SIZES, settings=DINOV3)
    assert bench.compare("turbovla_so101", options, "lerobot", text).passed


@pytest.mark.parametrize("form", FORMS)
def test_folders_that_lerobot_writes(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "checkpoint"
    vision = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 80}
    named = tmp_path / "dinov3"
    write_json(named / "config.json", {"model_type": "dinov3_vit", "num_register_tokens": 4, **vision})
    save(folder, tmp_path, form, str(named), chunk_size=9, n_action_steps=4)

    check(folder)


def test_a_folder_with_the_stand_in_for_dinov3(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    save(folder, tmp_path, "turbovla", "facebook/dinov3-vitb16-pretrain-lvd1689m")

    check(folder)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def save(folder: Path, beside: Path, form: str, vision_backbone: str, **settings: Any) -> None:
    """A folder as training leaves it, three cameras and 14 joints, and the tokenizer that a user adds."""
    from lerobot.configs import FeatureType, PolicyFeature

    package = importlib.import_module(f"lerobot_policy_{form}")
    text = beside / "bert"
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    write_json(text / "config.json", {"model_type": "bert", "vocab_size": 900, **sizes})
    write_json(text / "tokenizer.json", bert_tokenizer(900))
    write_json(text / "tokenizer_config.json", TOKENIZER_SETTINGS)
    inputs = {
        f"observation.images.{camera.name}": PolicyFeature(
            FeatureType.VISUAL, (3, camera.height, camera.width)
        )
        for camera in CAMERAS
    }
    inputs["observation.state"] = PolicyFeature(FeatureType.STATE, (14,))
    torch.manual_seed(0)
    config = package.TurboVLAConfig(
        input_features=inputs,
        output_features={"action": PolicyFeature(FeatureType.ACTION, (14,))},
        device="cpu",
        vision_backbone=vision_backbone,
        language_backbone=str(text),
        load_pretrained_backbones=False,
        image_size=64,
        dim_model=32,
        n_heads=4,
        dim_feedforward=64,
        n_fusion_layers=2,
        n_decoder_layers=2,
        **settings,
    )
    package.TurboVLAPolicy(config).save_pretrained(folder)
    stats = {
        name: {"mean": torch.randn(14) / 3, "std": torch.rand(14) + 0.1}
        for name in ("observation.state", "action")
    }
    for processor in getattr(package, f"make_{form}_pre_post_processors")(config, stats):
        processor.save_pretrained(folder)


def check(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    cases = random_cases(checkpoint, 2, seed=0)
    report = compare(checkpoint, SimdExecutor(), "lerobot", TEXT, cases, print)
    print(report)
    assert report.passed
