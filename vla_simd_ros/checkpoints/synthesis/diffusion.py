"""Random Diffusion Policy checkpoints, as LeRobot saves them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.resnet import add_resnet, feature_map_size, stage_channels
from vla_simd_ros.checkpoints.synthesis.unet import add_unet
from vla_simd_ros.checkpoints.synthesis.weights import F32, WeightMaker

_SIZE_FIELDS = {"chunk_size": "n_action_steps", "backbone": "vision_backbone"}
_SAMPLERS = ("DDPM", "DDIM")
# Of the maps that a spatial softmax reads: sharp enough that key points move with the frame.
_MAP_GAIN = 4.0


def diffusion_recipe(options: Options) -> Recipe:
    """A random Diffusion Policy; only fields that LeRobot's 0.4 and 0.6 know are written."""
    config = _config(options)
    apply_options(config, _SIZE_FIELDS, "diffusion", options)
    _check(config, options)
    _derive_crop(config)
    make = WeightMaker(options.seed)
    observed = options.state_dim + options.env_state_dim
    if options.cameras:
        observed += 2 * config["spatial_softmax_num_keypoints"] * len(options.cameras)
        _add_encoders(make, config, options)
    add_unet(make, "diffusion.unet", config, options.action_dim, observed * config["n_obs_steps"])
    return Recipe(
        config, make.tensors, features.preprocessor_steps(config), features.postprocessor_steps(config)
    )


def _config(options: Options) -> dict[str, Any]:
    """Full size, with the defaults of LeRobot 0.6."""
    return {
        **features.common_config("diffusion", options, observation_steps=2),
        "horizon": 64,
        "n_action_steps": 32,
        "normalization_mapping": {
            **features.normalization_mapping(options),
            "STATE": "MIN_MAX",
            "ACTION": "MIN_MAX",
        },
        "drop_n_last_frames": 7,
        "vision_backbone": "resnet18",
        "resize_shape": None,
        "crop_ratio": 1.0,
        "crop_shape": None,
        "crop_is_random": True,
        "pretrained_backbone_weights": None,
        "use_group_norm": False,
        "spatial_softmax_num_keypoints": 32,
        "use_separate_rgb_encoder_per_camera": True,
        "down_dims": [512, 1024, 2048],
        "kernel_size": 5,
        "n_groups": 8,
        "diffusion_step_embed_dim": 128,
        "use_film_scale_modulation": True,
        "noise_scheduler_type": "DDPM",
        "num_train_timesteps": 100,
        "beta_schedule": "squaredcos_cap_v2",
        "beta_start": 0.0001,
        "beta_end": 0.02,
        "prediction_type": "epsilon",
        "clip_sample": True,
        "clip_sample_range": 1.0,
        "num_inference_steps": None,
        "compile_model": False,
        "compile_mode": "reduce-overhead",
        "do_mask_loss_for_padding": False,
        "optimizer_lr": 1e-4,
        "optimizer_betas": [0.95, 0.999],
        "optimizer_eps": 1e-8,
        "optimizer_weight_decay": 1e-6,
        "scheduler_name": "cosine",
        "scheduler_warmup_steps": 500,
    }


def _check(config: dict[str, Any], options: Options) -> None:
    """Refuse what no network can be."""
    if not options.state_dim:
        raise OptionError("diffusion needs a state, got a width of 0")
    if not options.cameras and not options.env_state_dim:
        raise OptionError("diffusion needs a camera or an environment state, got neither")
    if len({(camera.height, camera.width) for camera in options.cameras}) > 1:
        raise OptionError("diffusion needs cameras of one size, got several")
    for name in ("n_obs_steps", "n_action_steps", "spatial_softmax_num_keypoints", "kernel_size", "n_groups"):
        if config[name] < 1:
            raise OptionError(f"{name} is {config[name]}, expected 1 or more")
    widths = config["down_dims"]
    if not widths or any(width < 1 or width % config["n_groups"] for width in widths):
        raise OptionError(f"down_dims is {widths}, expected multiples of n_groups ({config['n_groups']})")
    if config["horizon"] < 1 or config["horizon"] % 2 ** len(widths):
        raise OptionError(f"horizon is {config['horizon']}, expected a multiple of {2 ** len(widths)}")
    most = config["horizon"] - config["n_obs_steps"] + 1
    if config["n_action_steps"] > most:
        raise OptionError(f"n_action_steps is {config['n_action_steps']}, expected at most {most}")
    if config["diffusion_step_embed_dim"] < 4 or config["diffusion_step_embed_dim"] % 2:
        raise OptionError(
            f"diffusion_step_embed_dim is {config['diffusion_step_embed_dim']}, expected 4, 6, 8 ..."
        )
    if config["noise_scheduler_type"] not in _SAMPLERS:
        raise OptionError(
            f"noise_scheduler_type is '{config['noise_scheduler_type']}', expected {' or '.join(_SAMPLERS)}"
        )


def _derive_crop(config: dict[str, Any]) -> None:
    """A frame that is resized is cropped by the ratio alone."""
    if config["resize_shape"] is not None:
        ratio = config["crop_ratio"]
        cropped = [int(side * ratio) for side in config["resize_shape"]]
        config["crop_shape"] = cropped if ratio < 1 else None


def _add_encoders(make: WeightMaker, config: dict[str, Any], options: Options) -> None:
    """One encoder for each camera, or one for all."""
    if config["use_separate_rgb_encoder_per_camera"]:
        names = [f"diffusion.rgb_encoder.{index}" for index in range(len(options.cameras))]
    else:
        names = ["diffusion.rgb_encoder"]
    camera = options.cameras[0]
    frame = config["crop_shape"] or config["resize_shape"] or (camera.height, camera.width)
    height, width = feature_map_size(*frame)
    channels, keypoints = (
        stage_channels(config["vision_backbone"])[-1],
        config["spatial_softmax_num_keypoints"],
    )
    for name in names:
        add_resnet(
            make,
            f"{name}.backbone",
            config["vision_backbone"],
            lambda stage: f"{4 + stage}",
            stem=("0", "1"),
            group_norm=config["use_group_norm"],
        )
        make.spread(f"{name}.pool.nets.weight", (keypoints, channels, 1, 1), _MAP_GAIN * channels**-0.5)
        make.uniform(f"{name}.pool.nets.bias", (keypoints,), channels**-0.5)
        make.tensors[f"{name}.pool.pos_grid"] = _coordinates(height, width)
        make.linear(f"{name}.out", 2 * keypoints, 2 * keypoints)


def _coordinates(height: int, width: int) -> F32:
    """The position of each pixel, row by row: x, then y, from -1 to 1."""
    x, y = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
