"""Random SmolVLA checkpoints, with the folder of their vision-language model inside."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.checkpoint import CONFIG
from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.byte_vocabulary import byte_tokenizer
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.smolvlm import (
    add_llama_layer,
    add_rms_norm,
    add_smolvlm,
    check_smolvlm_config,
    processor_files,
    smolvlm_config,
)
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON

VLM_FOLDER = "vlm"
_VLM = "vlm"
_SIZE_FIELDS = {
    "chunk_size": "chunk_size",
    "encoder_layers": "num_vlm_layers",
    "dim_model": f"{_VLM}.text_config.hidden_size",
    "heads": f"{_VLM}.text_config.num_attention_heads",
    "feedforward": f"{_VLM}.text_config.intermediate_size",
}
_BODY = "model.vlm_with_expert"
# The expert's feed-forward layers are rounded up to a multiple of this.
_MULTIPLE = 256


def smolvla_recipe(options: Options) -> Recipe:
    """A random SmolVLA; settings below ``vlm.`` are those of its vision-language model."""
    config = {**_config(options), _VLM: smolvlm_config()}
    apply_options(config, _SIZE_FIELDS, "smolvla", options)
    vlm = config.pop(_VLM)
    check_smolvlm_config(vlm)
    _finish(config, options, vlm)
    make = WeightMaker(options.seed)
    add_smolvlm(make, f"{_BODY}.vlm", vlm, config["num_vlm_layers"])
    _add_expert(make, config, vlm["text_config"])
    _add_projections(make, config, options, vlm["text_config"]["hidden_size"])
    files = {
        CONFIG: vlm,
        TOKENIZER_JSON: byte_tokenizer(vlm["text_config"]["vocab_size"]),
        **processor_files(),
    }
    return Recipe(
        config,
        make.tensors,
        features.preprocessor_steps(config, _text_steps(config)),
        features.postprocessor_steps(config),
        {f"{VLM_FOLDER}/{name}": content for name, content in files.items()},
    )


def _config(options: Options) -> dict[str, Any]:
    """The configuration at full size, in fields that every LeRobot since 0.4 knows."""
    return {
        **features.common_config("smolvla", options),
        "chunk_size": 50,
        "n_action_steps": None,
        "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"},
        "max_state_dim": 32,
        "max_action_dim": 32,
        "resize_imgs_with_padding": [512, 512],
        "empty_cameras": 0,
        "adapt_to_pi_aloha": False,
        "use_delta_joint_actions_aloha": False,
        "tokenizer_max_length": 48,
        "num_steps": 10,
        "use_cache": True,
        "freeze_vision_encoder": True,
        "train_expert_only": True,
        "train_state_proj": True,
        "vlm_model_name": VLM_FOLDER,
        "load_vlm_weights": False,
        "add_image_special_tokens": False,
        "attention_mode": "cross_attn",
        "prefix_length": -1,
        "pad_language_to": "longest",
        "num_expert_layers": -1,
        "num_vlm_layers": 16,
        "self_attn_every_n_layers": 2,
        "expert_width_multiplier": 0.75,
        "min_period": 0.004,
        "max_period": 4.0,
    }


def _finish(config: dict[str, Any], options: Options, vlm: dict[str, Any]) -> None:
    """Fill in what follows from the rest, and refuse what cannot be built."""
    if config["n_action_steps"] is None:
        config["n_action_steps"] = config["chunk_size"]
    if config["num_vlm_layers"] <= 0:
        config["num_vlm_layers"] = vlm["text_config"]["num_hidden_layers"]
    if not options.cameras or not options.state_dim or options.env_state_dim:
        raise OptionError("smolvla needs a camera and a state, and has no environment state")
    for name in ("chunk_size", "n_action_steps", "num_steps", "tokenizer_max_length"):
        if config[name] < 1:
            raise OptionError(f"{name} is {config[name]}, expected 1 or more")
    for name, width in (("max_state_dim", options.state_dim), ("max_action_dim", options.action_dim)):
        if config[name] < width:
            raise OptionError(f"{name} is {config[name]}, expected {width} or more")
    layers, own = config["num_vlm_layers"], config["num_expert_layers"]
    if layers > vlm["text_config"]["num_hidden_layers"] or (own > 0 and layers % own):
        raise OptionError(
            f"num_vlm_layers is {layers}, expected at most {vlm['text_config']['num_hidden_layers']}, "
            f"a multiple of num_expert_layers ({own}) if that is above 0"
        )
    width = _expert_width(config, vlm["text_config"])
    if width < 2 or width % 2:
        raise OptionError(
            f"expert_width_multiplier is {config['expert_width_multiplier']}, expected a share of "
            f"{vlm['text_config']['hidden_size']} that gives an even width"
        )


def _expert_width(config: dict[str, Any], text: dict[str, Any]) -> int:
    return int(text["hidden_size"] * config["expert_width_multiplier"])


def _add_expert(make: WeightMaker, config: dict[str, Any], text: dict[str, Any]) -> None:
    width = _expert_width(config, text)
    inner = -(-int(4 * int(2 * width / 3)) // _MULTIPLE) * _MULTIPLE
    every = config["self_attn_every_n_layers"]
    layers = config["num_expert_layers"] if config["num_expert_layers"] > 0 else config["num_vlm_layers"]
    memory = text["num_key_value_heads"] * text["head_dim"]
    for index in range(layers):
        crossing = "cross" in config["attention_mode"] and not (every > 0 and index % every == 0)
        name = f"{_BODY}.lm_expert.layers.{index}"
        add_llama_layer(make, name, text, width, inner, memory if crossing else None)
    add_rms_norm(make, f"{_BODY}.lm_expert.norm", width)
    _add_linear(make, "model.action_in_proj", config["max_action_dim"], width)
    _add_linear(make, "model.action_out_proj", width, config["max_action_dim"])
    _add_linear(make, "model.action_time_mlp_in", 2 * width, width, gain=2.0)
    _add_linear(make, "model.action_time_mlp_out", width, width, gain=2.0)


def _add_projections(make: WeightMaker, config: dict[str, Any], options: Options, width: int) -> None:
    """The state's; its columns beyond the robot's meet nothing but zeros."""
    make.spread("model.state_proj.weight", (width, config["max_state_dim"]), options.state_dim**-0.5)
    make.spread("model.state_proj.bias", (width,), 0.1)


def _add_linear(make: WeightMaker, name: str, inputs: int, outputs: int, gain: float = 1.0) -> None:
    make.spread(f"{name}.weight", (outputs, inputs), gain * inputs**-0.5)
    make.spread(f"{name}.bias", (outputs,), 0.1)


def _text_steps(config: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    settings = {
        "max_length": config["tokenizer_max_length"],
        "task_key": "task",
        "padding_side": "right",
        "padding": config["pad_language_to"],
        "truncation": True,
        "tokenizer_name": config["vlm_model_name"],
    }
    return (
        {"registry_name": "smolvla_new_line_processor", "config": {}},
        {"registry_name": "tokenizer_processor", "config": settings},
    )
