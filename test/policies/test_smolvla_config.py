from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_checkpoints import with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.smolvla_config import ExpertLayer, read_smolvla_config

Open = Callable[..., Checkpoint]


def test_sizes_are_those_of_the_stored_networks(checkpoint: Open) -> None:
    config = read_smolvla_config(checkpoint("smolvla"))
    assert config.text == LlamaConfig(40, 4, 2, 8, 48, 1e-5)
    assert config.expert == LlamaConfig(20, 4, 2, 8, 256, 1e-5)
    assert dataclasses.astuple(config.vision) == (24, 3, 40, 2, 8, 4, 1e-6, False)
    assert (config.shuffle, config.vocabulary, config.image_size) == (2, 600, (32, 32))
    assert config.expert_layers == tuple(ExpertLayer(i, i % 2 == 0) for i in range(4))


def test_absent_fields_have_the_policy_s_defaults(checkpoint: Open) -> None:
    whole = checkpoint("smolvla")
    kept = {
        name: whole.config[name] for name in ("vlm_model_name", "num_vlm_layers", "expert_width_multiplier")
    }
    config = read_smolvla_config(dataclasses.replace(whole, config=kept))
    assert (config.chunk_size, config.n_action_steps, config.num_steps) == (50, 50, 10)
    assert (config.state_width, config.action_width, config.image_size) == (32, 32, (512, 512))
    assert (config.shortest_period, config.longest_period, config.max_tokens) == (0.004, 4.0, 48)


def test_without_the_model_s_folder_its_heads_are_those_of_smolvlm2(checkpoint: Open, tmp_path: Path) -> None:
    """The widths are too small for heads of 64, which says what was taken for granted."""
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint("smolvla").folder, folder)
    shutil.rmtree(folder / "vlm")
    with pytest.raises(
        CheckpointError, match=r"copy: text_config: head_dim is 64, expected an even divisor of 32"
    ):
        read_smolvla_config(load_checkpoint(folder))


def test_fields_that_the_model_s_folder_leaves_out_are_the_library_s(
    checkpoint: Open, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(checkpoint("smolvla").folder, folder)
    path = folder / "vlm" / "config.json"
    content = json.loads(path.read_text())
    del content["text_config"]["rms_norm_eps"], content["text_config"]["head_dim"]
    content["text_config"]["num_attention_heads"] = 5
    path.write_text(json.dumps(content))
    config = read_smolvla_config(load_checkpoint(folder))
    assert (config.text.head, config.text.eps) == (8, 1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"adapt_to_pi_aloha": True}, "adapt_to_pi_aloha is true, expected false"),
        ({"use_delta_joint_actions_aloha": True}, "use_delta_joint_actions_aloha is true, expected false"),
        ({"n_obs_steps": 2}, "n_obs_steps is 2, expected 1"),
        ({"n_action_steps": 6}, r"n_action_steps is 6, expected at most chunk_size \(5\)"),
        ({"num_steps": 0}, "num_steps is 0, expected 1 or more"),
        ({"max_state_dim": 5}, "max_state_dim is 5, expected 6 or more, the width of 'observation.state'"),
        ({"max_action_dim": 5}, "max_action_dim is 5, expected 6 or more, the width of 'action'"),
        ({"num_vlm_layers": 5}, "num_vlm_layers is 5, expected at most the 4 that are stored"),
        ({"num_expert_layers": 3}, r"num_expert_layers is 3, expected a divisor of num_vlm_layers \(4\)"),
        ({"num_expert_layers": 2, "attention_mode": "self_attn"}, "layer 1 of num_vlm_layers .4. has none"),
        (
            {"resize_imgs_with_padding": [32]},
            r"resize_imgs_with_padding is \[32\], expected \[width, height\]",
        ),
        ({"resize_imgs_with_padding": [32, 48]}, "is 32x48, expected a square with a multiple of 16 pixels"),
        ({"resize_imgs_with_padding": [24, 24]}, "is 24x24, expected a square with a multiple of 16 pixels"),
        ({"resize_imgs_with_padding": None}, "the size of a camera's images is 56x40, expected a square"),
        ({"expert_width_multiplier": 0.01}, "expert_width_multiplier is 0.01, expected a share of 40"),
        ({"min_period": 0}, "min_period is 0.0, expected a number above 0"),
        ({"empty_cameras": "one"}, "'empty_cameras' is a string"),
        ({"attention_mode": 3}, "'attention_mode' is an integer"),
    ],
)
def test_what_cannot_be_built_is_named(checkpoint: Open, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_smolvla_config(with_config(checkpoint("smolvla"), **fields))


def test_features_are_checked(checkpoint: Open) -> None:
    whole = checkpoint("smolvla")
    state = whole.features_in["observation.state"]
    with pytest.raises(CheckpointError, match=r"input_features is .*, expected a camera"):
        read_smolvla_config(dataclasses.replace(whole, features_in={state.name: state}))
    images = {name: f for name, f in whole.features_in.items() if f is not state}
    with pytest.raises(CheckpointError, match="expected the robot's state too"):
        read_smolvla_config(dataclasses.replace(whole, features_in=images))
