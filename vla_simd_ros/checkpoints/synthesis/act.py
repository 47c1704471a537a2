"""Random ACT checkpoints, as LeRobot saves them: the training-only encoder of actions included."""

from __future__ import annotations

from typing import Any

import numpy as np

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.resnet import PUBLISHED_WIDTH, add_resnet, stage_channels
from vla_simd_ros.checkpoints.synthesis.transformer import add_decoder, add_encoder
from vla_simd_ros.checkpoints.synthesis.weights import F32, WeightMaker, require_room

BACKBONE_WIDTH = "backbone_width"
SIZE_FIELDS = {
    "chunk_size": "chunk_size",
    "encoder_layers": "n_encoder_layers",
    "decoder_layers": "n_decoder_layers",
    "dim_model": "dim_model",
    "heads": "n_heads",
    "feedforward": "dim_feedforward",
    "pre_norm": "pre_norm",
    "backbone": "vision_backbone",
}


def act_recipe(options: Options) -> Recipe:
    """A random ACT. Only configuration fields that every LeRobot since 0.4 knows are written."""
    config = finished_act_config(options)
    make = WeightMaker(options.seed)
    add_act_weights(make, config, options, vae_tokens=1 + bool(options.state_dim))
    if options.cameras:
        add_resnet(
            make,
            "model.backbone",
            config["vision_backbone"],
            lambda stage: f"layer{stage + 1}",
            base=backbone_width(config),
        )
    return Recipe(
        config, make.tensors, features.preprocessor_steps(config), features.postprocessor_steps(config)
    )


def finished_act_config(options: Options) -> dict[str, Any]:
    """ACT's config.json, complete and checked. Raises `OptionError`."""
    config = act_config("act", options)
    apply_options(config, SIZE_FIELDS, "act", options)
    finish_act_config(config, options)
    return config


def act_config(policy: str, options: Options) -> dict[str, Any]:
    """ACT's configuration at full size. ``n_action_steps`` None stands for the whole chunk."""
    return {
        **features.common_config(policy, options),
        "chunk_size": 100,
        "n_action_steps": None,
        "normalization_mapping": features.normalization_mapping(options),
        "vision_backbone": "resnet18",
        BACKBONE_WIDTH: None,
        "pretrained_backbone_weights": None,
        "replace_final_stride_with_dilation": False,
        "pre_norm": False,
        "dim_model": 512,
        "n_heads": 8,
        "dim_feedforward": 3200,
        "feedforward_activation": "relu",
        "n_encoder_layers": 4,
        "n_decoder_layers": 1,
        "use_vae": True,
        "latent_dim": 32,
        "n_vae_encoder_layers": 4,
        "temporal_ensemble_coeff": None,
        "dropout": 0.1,
        "kl_weight": 10.0,
        "optimizer_lr": 1e-05,
        "optimizer_weight_decay": 0.0001,
        "optimizer_lr_backbone": 1e-05,
    }


def backbone_width(config: dict[str, Any]) -> int:
    """Channels of the backbone's first stage."""
    width: int = config.get(BACKBONE_WIDTH, PUBLISHED_WIDTH)
    return width


def finish_act_config(config: dict[str, Any], options: Options) -> None:
    """Fill in what follows from the rest, and refuse what cannot be built."""
    if config["n_action_steps"] is None:
        config["n_action_steps"] = config["chunk_size"] if config["temporal_ensemble_coeff"] is None else 1
    if config[BACKBONE_WIDTH] is None:
        # LeRobot's ACT knows the published width only, and refuses a field of this name.
        del config[BACKBONE_WIDTH]
    if not options.cameras and not options.env_state_dim:
        raise OptionError(f"{config['type']} needs a camera or an environment state, got neither")
    for name in (
        "chunk_size",
        "dim_model",
        "n_heads",
        "dim_feedforward",
        "n_encoder_layers",
        "n_decoder_layers",
        "n_vae_encoder_layers",
        "latent_dim",
        BACKBONE_WIDTH,
    ):
        if config.get(name, 1) < 1:
            raise OptionError(f"{name} is {config[name]}, expected 1 or more")
    if config["dim_model"] % config["n_heads"]:
        raise OptionError(
            f"dim_model is {config['dim_model']}, expected a multiple of {config['n_heads']} heads"
        )
    if options.cameras and config["dim_model"] % 4:
        raise OptionError(
            f"dim_model is {config['dim_model']}, expected a multiple of 4 (2-D sine positions)"
        )
    if not 1 <= config["n_action_steps"] <= config["chunk_size"]:
        raise OptionError(
            f"n_action_steps is {config['n_action_steps']}, expected 1 to {config['chunk_size']}"
        )


def add_act_weights(make: WeightMaker, config: dict[str, Any], options: Options, vae_tokens: int) -> None:
    """Everything but the backbone; ``vae_tokens`` stand before the actions in the encoder of actions."""
    width = config["dim_model"]
    if config["use_vae"]:
        _add_vae(make, config, options, vae_tokens)
    add_act_encoder(make, config, options)
    add_decoder(make, "model.decoder", config["n_decoder_layers"], config)
    make.embedding("model.decoder_pos_embed", config["chunk_size"], width)
    make.linear("model.action_head", width, options.action_dim)


def add_act_encoder(make: WeightMaker, config: dict[str, Any], options: Options) -> None:
    """The encoder and what its tokens come from, but the backbone."""
    width = config["dim_model"]
    add_encoder(make, "model.encoder", config["n_encoder_layers"], config)
    make.linear("model.encoder_latent_input_proj", config["latent_dim"], width)
    if options.state_dim:
        make.linear("model.encoder_robot_state_input_proj", options.state_dim, width)
    if options.env_state_dim:
        make.linear("model.encoder_env_state_input_proj", options.env_state_dim, width)
    if options.cameras:
        _add_image_projection(
            make, stage_channels(config["vision_backbone"], backbone_width(config))[-1], width
        )
    tokens = 1 + bool(options.state_dim) + bool(options.env_state_dim)
    make.embedding("model.encoder_1d_feature_pos_embed", tokens, width)


def _add_image_projection(make: WeightMaker, channels: int, width: int) -> None:
    bound = channels**-0.5
    make.uniform("model.encoder_img_feat_input_proj.weight", (width, channels, 1, 1), bound)
    make.uniform("model.encoder_img_feat_input_proj.bias", (width,), bound)


def _add_vae(make: WeightMaker, config: dict[str, Any], options: Options, tokens: int) -> None:
    width = config["dim_model"]
    add_encoder(make, "model.vae_encoder", config["n_vae_encoder_layers"], config)
    make.embedding("model.vae_encoder_cls_embed", 1, width)
    if options.state_dim:
        make.linear("model.vae_encoder_robot_state_input_proj", options.state_dim, width)
    make.linear("model.vae_encoder_action_input_proj", options.action_dim, width)
    make.linear("model.vae_encoder_latent_output_proj", width, 2 * config["latent_dim"])
    name, rows = "model.vae_encoder_pos_enc", tokens + config["chunk_size"]
    require_room(name, (rows, width))
    make.tensors[name] = _sine_positions(rows, width)[None]


def _sine_positions(rows: int, width: int) -> F32:
    """Sine (even columns) and cosine (odd columns) of the row number at falling frequencies."""
    column = np.arange(width)
    angle = np.arange(rows)[:, None] / 10000.0 ** (2 * (column // 2) / width)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)
