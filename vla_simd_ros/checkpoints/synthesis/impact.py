"""Random IMPACT checkpoints: ACT with a T5 text encoder and text-modulated visual features."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.act import (
    SIZE_FIELDS,
    act_config,
    add_act_weights,
    finish_act_config,
)
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.resnet import STAGE_WIDTHS, add_resnet, output_channels
from vla_simd_ros.checkpoints.synthesis.t5 import SMALL, add_t5_encoder
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON

# Large enough that an instruction changes the action visibly, small beside the 1 it is added to.
_FILM_DEVIATION = 0.2


def impact_recipe(options: Options) -> Recipe:
    """A random IMPACT with its tokenizer."""
    config = _config(options)
    apply_options(config, SIZE_FIELDS, "impact", options)
    _finish(config, options)
    text = config["text_config"]
    make = WeightMaker(options.seed)
    language = config["vae_sees_language"]
    add_act_weights(make, config, options, vae_tokens=1 + bool(options.state_dim) + language)
    add_resnet(make, "model.backbone", config["vision_backbone"], lambda stage: f"stages.{stage}")
    add_t5_encoder(make, "model.text.model", text)
    make.linear("model.text_input_proj", text["d_model"], config["dim_model"])
    make.embedding("model.text_pos_embed", config["tokenizer_max_length"], config["dim_model"])
    if config["use_vae"] and language:
        make.linear("model.vae_encoder_language_input_proj", text["d_model"], config["dim_model"])
    if config["use_film"]:
        _add_film(make, text["d_model"], output_channels(config["vision_backbone"]) // STAGE_WIDTHS[-1])
    steps = features.preprocessor_steps(config, (_tokenizer_step(config),))
    tokenizer = t5_tokenizer(text["vocab_size"])
    return Recipe(
        config, make.tensors, steps, features.postprocessor_steps(config), {TOKENIZER_JSON: tokenizer}
    )


def _config(options: Options) -> dict[str, Any]:
    return {
        **act_config("impact", options),
        "chunk_size": 50,
        "n_encoder_layers": 6,
        "n_decoder_layers": 4,
        "optimizer_lr": 1e-4,
        "optimizer_lr_backbone": 1e-4,
        "text_model": "t5-small",
        "text_config": dict(SMALL),
        "tokenizer_max_length": 32,
        "use_film": True,
        "vae_sees_language": True,
    }


def _finish(config: dict[str, Any], options: Options) -> None:
    finish_act_config(config, options)
    if not options.cameras:
        raise OptionError("impact needs a camera")
    if config["tokenizer_max_length"] <= 1:
        raise OptionError(f"tokenizer_max_length is {config['tokenizer_max_length']}, expected 2 or more")
    for name, value in config["text_config"].items():
        if value <= 0:
            raise OptionError(f"text_config.{name} is {value}, expected a positive number")


def _add_film(make: WeightMaker, text_width: int, expansion: int) -> None:
    """One linear layer: scales of all stages, then shifts of all stages."""
    outputs = 2 * sum(STAGE_WIDTHS) * expansion
    make.spread("model.film_head.net.weight", (outputs, text_width), _FILM_DEVIATION * text_width**-0.5)
    make.spread("model.film_head.net.bias", (outputs,), _FILM_DEVIATION / 4)


def _tokenizer_step(config: dict[str, Any]) -> dict[str, Any]:
    settings = {
        "max_length": config["tokenizer_max_length"],
        "task_key": "task",
        "padding_side": "right",
        "padding": "max_length",
        "truncation": True,
        "tokenizer_name": config["text_model"],
    }
    return {"registry_name": "tokenizer_processor", "config": settings}
