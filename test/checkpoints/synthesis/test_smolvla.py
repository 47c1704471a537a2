"""Names and shapes of random SmolVLAs, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, OptionError, Options, make_checkpoint
from vla_simd_ros.checkpoints.synthesis.smolvla import smolvla_recipe
from vla_simd_ros.checkpoints.synthesis.weights import F32, WeightMaker

TINY: dict[str, Any] = {
    "num_vlm_layers": 2,
    "vlm.text_config.hidden_size": 16,
    "vlm.text_config.intermediate_size": 16,
    "vlm.text_config.num_attention_heads": 2,
    "vlm.text_config.num_key_value_heads": 1,
    "vlm.text_config.head_dim": 8,
    "vlm.text_config.vocab_size": 300,
    "vlm.vision_config.hidden_size": 16,
    "vlm.vision_config.intermediate_size": 16,
    "vlm.vision_config.num_hidden_layers": 1,
    "vlm.vision_config.num_attention_heads": 2,
    "vlm.vision_config.image_size": 64,
}


def tiny(**changes: Any) -> Options:
    return Options(**{"settings": TINY, **changes})


def test_full_size_has_the_parameters_of_lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    """450,046,176, as LeRobot 0.6.1 builds it."""

    def hollow(self: WeightMaker, name: str, shape: tuple[int, ...], low: float, high: float) -> F32:
        return np.broadcast_to(np.float32(0), shape)

    monkeypatch.setattr(WeightMaker, "draw", hollow)
    tensors = smolvla_recipe(Options()).tensors
    assert len(tensors) == 500
    assert sum(tensor.size for tensor in tensors.values()) == 450_046_176


def test_the_folder_stands_alone(tmp_path: Path) -> None:
    make_checkpoint("smolvla", tmp_path / "out", tiny())
    checkpoint = load_checkpoint(tmp_path / "out")
    assert checkpoint.named_folder("vlm_model_name") == tmp_path / "out" / "vlm"
    tokenizer = checkpoint.tokenizer()
    assert tokenizer.source == tmp_path / "out" / "vlm" / "tokenizer.json"
    assert (tokenizer.max_tokens, tokenizer.vocabulary_size) == (48, 300)
    assert tokenizer.encode("open") == tokenizer.encode("open\n")
    vlm = json.loads((tmp_path / "out" / "vlm" / "config.json").read_text())
    assert vlm["text_config"]["hidden_size"] == 16
    assert "vlm" not in checkpoint.config


def test_keys_and_values_come_from_the_prefix_in_every_other_layer() -> None:
    tensors = smolvla_recipe(tiny()).tensors
    name = "model.vlm_with_expert.lm_expert.layers.{}.self_attn.k_proj.weight"
    assert [tensors[name.format(index)].shape for index in range(2)] == [(8, 12), (8, 8)]
    joint = smolvla_recipe(tiny(settings={**TINY, "attention_mode": "self_attn"})).tensors
    assert [joint[name.format(index)].shape for index in range(2)] == [(8, 12), (8, 12)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"cameras": ()}, "smolvla needs a camera and a state, and has no environment state"),
        ({"state_dim": 0}, "smolvla needs a camera and a state"),
        ({"env_state_dim": 2}, "smolvla needs a camera and a state"),
        ({"sizes": {"chunk_size": 0}}, "chunk_size is 0, expected 1 or more"),
        ({"sizes": {"decoder_layers": 1}}, "smolvla has no --decoder-layers"),
        ({"state_dim": 33}, "max_state_dim is 32, expected 33 or more"),
        ({"settings": {"num_vlm_layers": 33}}, "num_vlm_layers is 33, expected at most 32"),
        ({"settings": {"num_expert_layers": 5}}, r"a multiple of num_expert_layers \(5\)"),
        ({"settings": {"expert_width_multiplier": 0.001}}, "expected a share of 960"),
        ({"settings": {"vlm.text_config.head_dim": 7}}, "15 heads of 7 with 5 for keys"),
        ({"settings": {"vlm.vision_config.hidden_size": 770}}, "is 770, expected a multiple of 12 heads"),
        ({"settings": {"vlm.vision_config.patch_size": 0}}, "vlm.vision_config.patch_size is 0"),
        ({"settings": {"vlm.text_config.vocab_size": 100}}, "vocab_size is 100, expected 263 or more"),
    ],
)
def test_what_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], complaint: str
) -> None:
    monkeypatch.setattr(WeightMaker, "draw", lambda self, name, shape, low, high: np.zeros(1, np.float32))
    with pytest.raises(OptionError, match=complaint):
        make_checkpoint("smolvla", tmp_path / "out", Options(**options))
    assert not (tmp_path / "out").exists()


def test_cameras_of_any_size() -> None:
    config = smolvla_recipe(tiny(cameras=(Camera("top", 17, 33),))).config
    assert config["input_features"]["observation.images.top"]["shape"] == [3, 17, 33]
    assert config["normalization_mapping"]["VISUAL"] == "IDENTITY"
