from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from small_checkpoints import with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.policies.act import ActPolicy
from vla_simd_ros.policies.act_config import read_act_config

Open = Callable[..., Checkpoint]


def test_absent_fields_have_the_policy_s_defaults(checkpoint: Open) -> None:
    bare = dataclasses.replace(checkpoint("act"), config={})
    config = read_act_config(bare, encoder_layers=6, decoder_layers=4, chunk=50)
    assert (config.encoder_layers, config.decoder_layers) == (6, 4)
    assert (config.chunk_size, config.n_action_steps, config.latent_dim) == (50, 50, 32)
    assert (config.backbone, config.dilated, config.temporal_ensemble_coeff) == ("resnet18", False, None)
    assert dataclasses.astuple(config.transformer) == (512, 8, 3200, "relu", False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_heads": 5}, r"dim_model is 32, expected a multiple of n_heads \(5\)"),
        (
            {"dim_model": 30, "n_heads": 2},
            r"dim_model is 30, expected a multiple of 4 \(2-D sine positions\)",
        ),
        ({"feedforward_activation": "glu"}, "feedforward_activation is 'glu', expected relu or gelu"),
        ({"n_decoder_layers": 0}, "n_decoder_layers is 0, expected 1 or more"),
        ({"chunk_size": -1}, "chunk_size is -1, expected 1 or more"),
        ({"n_action_steps": 6}, r"n_action_steps is 6, expected at most chunk_size \(5\)"),
        ({"n_obs_steps": 2}, "n_obs_steps is 2, expected 1"),
        ({"vision_backbone": "vgg16"}, "vision_backbone is 'vgg16', expected one of resnet18, resnet34"),
        ({"replace_final_stride_with_dilation": True}, "expected a backbone of bottleneck blocks"),
        ({"dim_model": "wide"}, "'dim_model' is a string"),
        ({"pre_norm": "false"}, "'pre_norm' is a string .*, expected true or false"),
        ({"replace_final_stride_with_dilation": "no"}, "expected true or false"),
        ({"temporal_ensemble_coeff": "a"}, "'temporal_ensemble_coeff' is a string .*, expected a number"),
    ],
)
def test_what_cannot_be_built_is_named(checkpoint: Open, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ActPolicy(with_config(checkpoint("act"), **fields))


def test_features_are_checked(checkpoint: Open) -> None:
    whole = checkpoint("act")
    state = whole.features_in["observation.state"]
    with pytest.raises(CheckpointError, match="expected a camera or an environment state"):
        ActPolicy(dataclasses.replace(whole, features_in={state.name: state}))
    grey = Feature("observation.images.grey", FeatureKind.VISUAL, (1, 40, 56))
    with pytest.raises(
        CheckpointError, match=r"camera 'grey' has shape \[1, 40, 56\], expected \[3, height, width\]"
    ):
        ActPolicy(dataclasses.replace(whole, features_in={grey.name: grey}))
    with pytest.raises(CheckpointError, match=r"output_features is \[\], expected 'action' among them"):
        ActPolicy(dataclasses.replace(whole, features_out={}))


@pytest.mark.parametrize("group", ["features_in", "features_out"])
def test_a_feature_of_another_kind_is_refused(checkpoint: Open, group: str) -> None:
    whole = checkpoint("act")
    name, kind = {
        "features_in": ("observation.state", "STATE"),
        "features_out": ("action", "ACTION"),
    }[group]
    changed = dict(getattr(whole, group))
    changed[name] = dataclasses.replace(changed[name], kind=FeatureKind.ENV)
    with pytest.raises(CheckpointError, match=f"type of '{name}' is ENV, expected {kind}"):
        ActPolicy(dataclasses.replace(whole, **{group: changed}))


def test_a_chunk_size_beyond_the_stored_positions_makes_nothing_of_that_size(checkpoint: Open) -> None:
    policy = ActPolicy(with_config(checkpoint("act"), chunk_size=10**15))
    with pytest.raises(CheckpointError, match=r"decoder_pos_embed.weight' has shape \[5, 32\], expected"):
        policy.build()
