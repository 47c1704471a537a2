"""Random Octo checkpoints, with a diffusion head that removes noise as a trained one does."""

from __future__ import annotations

from typing import Any

import numpy as np

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.options import Camera, OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.t5 import BASE, add_t5_encoder
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON

OCTO_OPTIONS = Options(
    cameras=(Camera("primary", 256, 256), Camera("wrist", 128, 128)), state_dim=0, action_dim=7
)
"""The robots that Octo-Small was trained on."""

_SIZE_FIELDS = {
    "chunk_size": "chunk_size",
    "encoder_layers": "n_layers",
    "dim_model": "dim_model",
    "heads": "n_heads",
    "feedforward": "dim_feedforward",
}
_POSITIVE = ("chunk_size", "n_obs_steps", "max_action_dim", "dim_model", "n_layers", "n_heads", "n_readouts")
_COLOURS = 3
# Of queries and keys: attention that is nearly uniform would make all images alike.
_SHARPNESS = 1.5
# Of what a layer adds to a residual sum.
_RESIDUAL_SCALE = 0.5
# Of the noise that the head predicts, the part that depends on what is seen.
_CONDITION_SCALE = 0.5


def octo_recipe(options: Options) -> Recipe:
    """A random Octo with its tokenizer; the state of the robot is not among its inputs."""
    config = octo_config(options)
    apply_options(config, _SIZE_FIELDS, "octo", options)
    _check(config, options)
    make = WeightMaker(options.seed)
    add_t5_encoder(make, "model.text.model", config["text_config"])
    _add_task(make, config)
    for camera in options.cameras:
        _add_camera(make, f"model.observation.{camera.name}", camera, config)
    rows, width = config["n_readouts"], config["dim_model"]
    make.spread("model.readout.action.positions", (config["max_horizon"], rows, width), 1.0)
    for layer in range(config["n_layers"]):
        _add_layer(make, f"model.transformer.layers.{layer}", width, config["dim_feedforward"])
    make.layer_norm("model.transformer.norm", width)
    _add_head(make, "model.head", config)
    steps = octo_preprocessor(config)
    tokenizer = {TOKENIZER_JSON: t5_tokenizer(config["text_config"]["vocab_size"])}
    return Recipe(config, make.tensors, steps, features.postprocessor_steps(config), tokenizer)


def octo_config(options: Options) -> dict[str, Any]:
    """The configuration of Octo-Small."""
    inputs = features.input_features(options)
    return {
        "type": "octo",
        "n_obs_steps": 2,
        "input_features": {name: f for name, f in inputs.items() if f["type"] == "VISUAL"},
        "output_features": features.output_features(options),
        "normalization_mapping": {"VISUAL": "MIN_MAX", "ACTION": "MEAN_STD"},
        "chunk_size": 4,
        "n_action_steps": None,
        "max_action_dim": max(7, options.action_dim),
        "max_horizon": 10,
        "dim_model": 384,
        "n_layers": 12,
        "n_heads": 6,
        "dim_feedforward": 1536,
        "n_readouts": 1,
        "repeat_task_tokens": True,
        "use_correct_attention": True,
        "stem_channels": [32, 96, 192, 384],
        "stem_width": 512,
        "patch_size": 16,
        "sees_goal": True,
        "max_action": 5.0,
        "diffusion_steps": 20,
        "time_dim": 32,
        "head_width": 256,
        "head_blocks": 3,
        "text_model": "t5-base",
        "text_config": dict(BASE),
        "tokenizer_max_length": 16,
    }


def octo_preprocessor(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Steps of policy_preprocessor.json."""
    settings = {
        "max_length": config["tokenizer_max_length"],
        "task_key": "task",
        "padding_side": "right",
        "padding": "max_length",
        "truncation": True,
        "tokenizer_name": config["text_model"],
    }
    return features.preprocessor_steps(
        config, ({"registry_name": "tokenizer_processor", "config": settings},)
    )


def _check(config: dict[str, Any], options: Options) -> None:
    if config["n_action_steps"] is None:
        config["n_action_steps"] = config["chunk_size"]
    if not options.cameras:
        raise OptionError("octo needs a camera")
    for name in (*_POSITIVE, "dim_feedforward", "head_blocks", "diffusion_steps", "time_dim", "max_horizon"):
        if config[name] < 1:
            raise OptionError(f"{name} is {config[name]}, expected 1 or more")
    if config["dim_model"] % config["n_heads"]:
        raise OptionError(
            f"dim_model is {config['dim_model']}, expected a multiple of {config['n_heads']} heads"
        )
    patch = config["patch_size"]
    for camera in options.cameras:
        if camera.height % patch or camera.width % patch:
            raise OptionError(
                f"camera '{camera.name}': size is {camera.height}x{camera.width}, "
                f"expected multiples of patch_size ({patch})"
            )
    if options.action_dim > config["max_action_dim"]:
        raise OptionError(
            f"action-dim is {options.action_dim}, "
            f"expected at most max_action_dim ({config['max_action_dim']})"
        )
    least = 2 * config["chunk_size"] * config["max_action_dim"]
    if config["head_width"] < least:
        raise OptionError(
            f"head_width is {config['head_width']}, expected at least {least} for the values of a chunk"
        )


def _add_linear(make: WeightMaker, name: str, inputs: int, outputs: int, gain: float = 1.0) -> None:
    make.spread(f"{name}.weight", (outputs, inputs), gain * inputs**-0.5)
    make.uniform(f"{name}.bias", (outputs,), 0.05)


def _add_task(make: WeightMaker, config: dict[str, Any]) -> None:
    width = config["dim_model"]
    _add_linear(make, "model.task.language.projection", config["text_config"]["d_model"], width)
    make.spread("model.task.language.positions", (config["tokenizer_max_length"], width), 0.5)


def _add_camera(make: WeightMaker, name: str, camera: Camera, config: dict[str, Any]) -> None:
    inputs = _COLOURS * (2 if config["sees_goal"] else 1)
    for index, channels in enumerate(config["stem_channels"]):
        make.convolution(f"{name}.stem.{index}.conv", inputs, channels, 3)
        make.uniform(f"{name}.stem.{index}.conv.bias", (channels,), 0.1)
        make.group_norm(f"{name}.stem.{index}.norm", channels)
        inputs = channels
    patch, stride = config["patch_size"], 2 ** len(config["stem_channels"])
    make.convolution(f"{name}.stem.embedding", inputs, config["stem_width"], patch // stride)
    make.uniform(f"{name}.stem.embedding.bias", (config["stem_width"],), 0.05)
    _add_linear(make, f"{name}.projection", config["stem_width"], config["dim_model"])
    patches = (camera.height // patch) * (camera.width // patch)
    make.spread(f"{name}.positions", (config["max_horizon"], patches, config["dim_model"]), 0.5)


def _add_layer(make: WeightMaker, name: str, width: int, hidden: int) -> None:
    gains = {"q": _SHARPNESS, "k": _SHARPNESS, "v": 1.0, "out": _RESIDUAL_SCALE}
    for part, gain in gains.items():
        _add_linear(make, f"{name}.self_attn.{part}", width, width, gain)
    make.layer_norm(f"{name}.norm1", width)
    make.layer_norm(f"{name}.norm2", width)
    _add_linear(make, f"{name}.linear1", width, hidden)
    _add_linear(make, f"{name}.linear2", hidden, width, _RESIDUAL_SCALE)


def _add_head(make: WeightMaker, name: str, config: dict[str, Any]) -> None:
    """A head whose prediction is the sample itself, which is noise for the greater part, and something that
    depends on readout and time."""
    time, width, values = (
        config["time_dim"],
        config["head_width"],
        config["chunk_size"] * config["max_action_dim"],
    )
    make.spread(f"{name}.time.frequencies", (time // 2, 1), 0.2)
    _add_linear(make, f"{name}.time.linear1", time, 2 * time)
    _add_linear(make, f"{name}.time.linear2", 2 * time, time)
    _add_linear(make, f"{name}.input", time + config["dim_model"] + values, width)
    for block in range(config["head_blocks"]):
        make.layer_norm(f"{name}.blocks.{block}.norm", width)
        _add_linear(make, f"{name}.blocks.{block}.linear1", width, 4 * width)
        _add_linear(make, f"{name}.blocks.{block}.linear2", 4 * width, width, _RESIDUAL_SCALE)
    _add_linear(make, f"{name}.output", width, values, _CONDITION_SCALE)
    # silu(x) - silu(-x) is x: two units carry each value of the sample through the network.
    through = np.eye(values, dtype=np.float32)
    make.tensors[f"{name}.input.weight"][: 2 * values, -values:] += np.concatenate([through, -through])
    make.tensors[f"{name}.output.weight"][:, : 2 * values] += np.concatenate([through, -through], axis=1)
