"""Random IMPACT checkpoints: ACT with a text encoder (T5 or BERT) and text-modulated visual features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.checkpoints.synthesis import bert, features
from vla_simd_ros.checkpoints.synthesis.act import (
    SIZE_FIELDS,
    act_config,
    add_act_weights,
    backbone_width,
    finish_act_config,
)
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.resnet import add_resnet, stage_channels
from vla_simd_ros.checkpoints.synthesis.t5 import SMALL, add_t5_encoder
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.checkpoints.synthesis.wordpiece_vocabulary import TOKENIZER_SETTINGS, bert_tokenizer
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON
from vla_simd_ros.checkpoints.wordpiece import TOKENIZER_CONFIG

# Large enough that an instruction changes the action visibly, small beside the 1 it is added to.
_FILM_DEVIATION = 0.2
_T5 = "t5"


@dataclass(frozen=True)
class _Encoder:
    """A kind of text encoder: its published name and sizes, and what makes a random one and its tokenizer."""

    published: str
    sizes: dict[str, Any]
    width_field: str
    add: Callable[[WeightMaker, str, dict[str, Any]], None]
    tokenizer_files: Callable[[int], dict[str, Any]]


def _bert_files(vocabulary: int) -> dict[str, Any]:
    return {TOKENIZER_JSON: bert_tokenizer(vocabulary), TOKENIZER_CONFIG: TOKENIZER_SETTINGS}


_ENCODERS = {
    _T5: _Encoder("t5-small", SMALL, "d_model", add_t5_encoder, lambda n: {TOKENIZER_JSON: t5_tokenizer(n)}),
    bert.BASE["model_type"]: _Encoder(
        "sentence-transformers/all-MiniLM-L6-v2", bert.MINILM, "hidden_size", bert.add_bert, _bert_files
    ),
}


def impact_recipe(options: Options) -> Recipe:
    """A random IMPACT with its tokenizer."""
    config = impact_config(options)
    make = WeightMaker(options.seed)
    language = config["vae_sees_language"]
    add_act_weights(make, config, options, vae_tokens=1 + bool(options.state_dim) + language)
    add_instruction(make, config)
    if config["use_vae"] and language:
        make.linear("model.vae_encoder_language_input_proj", _text_width(config), config["dim_model"])
    return finished_recipe(config, make)


def add_instruction(make: WeightMaker, config: dict[str, Any]) -> None:
    """The text encoder, and the backbone that it modulates."""
    width, base, text = config["dim_model"], backbone_width(config), config["text_config"]
    add_resnet(make, "model.backbone", config["vision_backbone"], lambda stage: f"stages.{stage}", base=base)
    _ENCODERS[text["model_type"]].add(make, "model.text.model", text)
    make.linear("model.text_input_proj", _text_width(config), width)
    make.embedding("model.text_pos_embed", config["tokenizer_max_length"], width)
    if config["use_film"]:
        _add_film(make, _text_width(config), sum(stage_channels(config["vision_backbone"], base)))


def finished_recipe(config: dict[str, Any], make: WeightMaker) -> Recipe:
    """The folder's content: what was made, processing steps, and the tokenizer."""
    text = config["text_config"]
    files = _ENCODERS[text["model_type"]].tokenizer_files(text["vocab_size"])
    steps = impact_preprocessor_steps(config)
    return Recipe(config, make.tensors, steps, features.postprocessor_steps(config), files)


def impact_config(options: Options) -> dict[str, Any]:
    """IMPACT's config.json, complete and checked. Raises `OptionError`."""
    config = unfinished_config("impact", options)
    apply_options(config, SIZE_FIELDS, "impact", options)
    finish_impact_config(config, options)
    return config


def impact_preprocessor_steps(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Steps of policy_preprocessor.json."""
    return features.preprocessor_steps(config, (_tokenizer_step(config),))


def unfinished_config(policy: str, options: Options) -> dict[str, Any]:
    """IMPACT's configuration at full size, before options are applied."""
    kind = options.settings.get("text_config.model_type", _T5)
    if kind not in _ENCODERS:
        raise OptionError(f"text_config.model_type is {kind!r}, expected one of {', '.join(_ENCODERS)}")
    encoder = _ENCODERS[kind]
    return {
        **act_config(policy, options),
        "chunk_size": 50,
        "n_encoder_layers": 6,
        "n_decoder_layers": 4,
        "optimizer_lr": 1e-4,
        "optimizer_lr_backbone": 1e-4,
        "text_model": encoder.published,
        "text_config": {**encoder.sizes, "model_type": kind},
        "tokenizer_max_length": 32,
        "use_film": True,
        "vae_sees_language": True,
    }


def finish_impact_config(config: dict[str, Any], options: Options) -> None:
    """Fill in what follows from the rest, and refuse what cannot be built."""
    finish_act_config(config, options)
    if not options.cameras:
        raise OptionError(f"{config['type']} needs a camera")
    if config["tokenizer_max_length"] <= 1:
        raise OptionError(f"tokenizer_max_length is {config['tokenizer_max_length']}, expected 2 or more")
    text = config["text_config"]
    for name, value in text.items():
        if not isinstance(value, str) and value <= 0:
            raise OptionError(f"text_config.{name} is {value}, expected a positive number")
    if text["model_type"] == bert.BASE["model_type"]:
        _check_bert(text, config["tokenizer_max_length"])


def _check_bert(text: dict[str, Any], longest: int) -> None:
    if text["hidden_size"] % text["num_attention_heads"]:
        raise OptionError(
            f"text_config.hidden_size is {text['hidden_size']}, "
            f"expected a multiple of {text['num_attention_heads']} heads"
        )
    if text["max_position_embeddings"] < longest:
        raise OptionError(
            f"text_config.max_position_embeddings is {text['max_position_embeddings']}, "
            f"expected {longest} (tokenizer_max_length) or more"
        )


def _text_width(config: dict[str, Any]) -> int:
    text = config["text_config"]
    width: int = text[_ENCODERS[text["model_type"]].width_field]
    return width


def _add_film(make: WeightMaker, text_width: int, channels: int) -> None:
    """One linear layer: scales of all stages, then shifts of all stages."""
    outputs = 2 * channels
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
