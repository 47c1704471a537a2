from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from small_checkpoints import with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.policies.diffusion import DiffusionPolicy
from vla_simd_ros.policies.diffusion_config import read_diffusion_config

Open = Callable[..., Checkpoint]


def test_absent_fields_have_the_defaults_of_lerobot(checkpoint: Open) -> None:
    config = read_diffusion_config(dataclasses.replace(checkpoint("diffusion"), config={}))
    assert (config.horizon, config.n_action_steps, config.observation_steps) == (64, 32, 2)
    assert dataclasses.astuple(config.encoder) == ("resnet18", False, 32, None, None)
    assert dataclasses.astuple(config.unet) == ((512, 1024, 2048), 5, 8, True)
    assert config.separate_encoders and config.embedding == 128
    solver = config.solver
    assert (solver.default_steps, solver.train_steps, solver.noise_per_step) == (100, 100, True)
    assert solver.sample_shape == (64, 6)


def test_the_earlier_generation_s_fields_are_read(checkpoint: Open) -> None:
    """The defaults of LeRobot 0.4 and before, as a folder of that time spells them out."""
    fields = {
        "horizon": 16,
        "n_action_steps": 8,
        "crop_shape": [32, 33],
        "use_group_norm": True,
        "use_separate_rgb_encoder_per_camera": False,
        "num_inference_steps": None,
    }
    config = read_diffusion_config(dataclasses.replace(checkpoint("diffusion"), config=fields))
    assert (config.horizon, config.n_action_steps, config.separate_encoders) == (16, 8, False)
    assert config.encoder.cropped == (32, 33) and config.encoder.group_norm


@pytest.mark.parametrize(("ratio", "cropped"), [(1.0, None), (0.9, (39, 32))], ids=["not cropped", "cropped"])
def test_a_resized_frame_is_cropped_by_the_ratio(
    checkpoint: Open, ratio: float, cropped: tuple[int, int] | None
) -> None:
    fields = {"resize_shape": [44, 36], "crop_ratio": ratio, "crop_shape": [10, 10]}
    config = read_diffusion_config(with_config(checkpoint("diffusion"), **fields))
    assert (config.encoder.resized, config.encoder.cropped) == ((44, 36), cropped)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"horizon": 6}, r"horizon is 6, expected a multiple of 4 \(2 down_dims\)"),
        ({"n_action_steps": 8}, r"n_action_steps is 8, expected at most horizon - n_obs_steps \+ 1 \(7\)"),
        ({"n_obs_steps": 0}, "n_obs_steps is 0, expected 1 or more"),
        ({"down_dims": [16, 30]}, r"down_dims is \[16, 30\], expected multiples of n_groups \(4\)"),
        ({"down_dims": []}, r"down_dims is \[\], expected multiples"),
        ({"down_dims": [16, 2.5]}, "down_dims is .*, expected multiples"),
        ({"down_dims": [12, 16]}, "the first of down_dims is 12, expected a multiple of 8"),
        ({"kernel_size": 4}, "kernel_size is 4, expected an odd number"),
        ({"diffusion_step_embed_dim": 7}, "diffusion_step_embed_dim is 7, expected an even number from 4"),
        ({"diffusion_step_embed_dim": 2}, "diffusion_step_embed_dim is 2, expected an even number from 4"),
        ({"noise_scheduler_type": "Euler"}, "noise_scheduler_type is 'Euler', expected one of DDPM, DDIM"),
        ({"prediction_type": "v_prediction"}, "'v_prediction', expected one of epsilon, sample"),
        ({"beta_schedule": "cosine"}, "beta_schedule is 'cosine', expected one of linear, scaled_linear"),
        (
            {"noise_scheduler_type": "DDIM", "beta_schedule": "sigmoid"},
            "beta_schedule is 'sigmoid', expected one of linear, scaled_linear, squaredcos_cap_v2$",
        ),
        ({"beta_end": 1.5}, "beta_end is 1.5, expected between 0 and 1"),
        (
            {"num_inference_steps": 13},
            r"num_inference_steps is 13, expected at most num_train_timesteps \(12\)",
        ),
        ({"clip_sample": "no"}, "'clip_sample' is a string .*, expected true or false"),
        ({"crop_shape": [41, 40]}, r"crop_shape is \[41, 40\], expected at most the frames' \[40, 56\]"),
        ({"crop_shape": [41]}, r"crop_shape is \[41\], expected \[height, width\] in pixels"),
        ({"resize_shape": [0, 4]}, r"resize_shape is \[0, 4\], expected \[height, width\] in pixels"),
        ({"crop_ratio": 0.0}, "crop_ratio is 0.0, expected more than 0, at most 1"),
        ({"vision_backbone": "vgg16"}, "vision_backbone is 'vgg16', expected one of resnet18, resnet34"),
    ],
)
def test_what_cannot_be_built_is_named(checkpoint: Open, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        DiffusionPolicy(with_config(checkpoint("diffusion"), **fields))


def test_features_are_checked(checkpoint: Open) -> None:
    whole = checkpoint("diffusion")
    features = whole.features_in
    state = {"observation.state": features["observation.state"]}
    with pytest.raises(CheckpointError, match="expected a camera or an environment state"):
        DiffusionPolicy(dataclasses.replace(whole, features_in=state))
    blind = {name: f for name, f in features.items() if f.kind is not FeatureKind.STATE}
    with pytest.raises(CheckpointError, match=r"expected 'observation\.state' among them"):
        DiffusionPolicy(dataclasses.replace(whole, features_in=blind))
    other = Feature("observation.images.other", FeatureKind.VISUAL, (3, 40, 60))
    with pytest.raises(CheckpointError, match="size of the cameras is 40x56, 40x60, expected the same"):
        DiffusionPolicy(dataclasses.replace(whole, features_in={**features, other.name: other}))


def test_an_encoder_s_coordinates_must_fit_the_frame(checkpoint: Open) -> None:
    policy = DiffusionPolicy(with_config(checkpoint("diffusion"), crop_shape=[32, 32]))
    with pytest.raises(CheckpointError, match=r"pool\.pos_grid.* \[4, 2\].* \[1, 2\]"):
        policy.build()
