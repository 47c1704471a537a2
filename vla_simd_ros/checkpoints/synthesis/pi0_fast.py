"""Random pi0-FAST checkpoints, with tokenizers of texts and of actions inside: scaled down, or in the
published size."""

from __future__ import annotations

from typing import Any

import numpy as np

from vla_simd_ros.checkpoints.fast_tokenizer import ACTION_TOKENIZER_FOLDER, PROCESSOR_CONFIG
from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.driving import add_linear
from vla_simd_ros.checkpoints.synthesis.gemma_vocabulary import (
    fast_processor,
    fast_tokenizer,
    gemma_tokenizer,
)
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.smolvlm import add_llama_layer, add_siglip
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON

_BODY = "model.paligemma_with_expert.paligemma"
_SIZES = "paligemma"
_SIZE_FIELDS = {
    "chunk_size": "chunk_size",
    "encoder_layers": f"{_SIZES}.vision_config.num_hidden_layers",
    "decoder_layers": f"{_SIZES}.text_config.num_hidden_layers",
    "dim_model": f"{_SIZES}.text_config.hidden_size",
    "heads": f"{_SIZES}.text_config.num_attention_heads",
    "feedforward": f"{_SIZES}.text_config.intermediate_size",
}
_TEXT = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 8192,
}
_TEXT_FULL = {
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 18,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 257152,
}
_VISION = {
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "patch_size": 14,
}
_VISION_FULL = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
}
# Words that spell no action score so much less, or a random network would answer with one of them.
_OTHER_WORDS = 0.2
# Of what feed-forward layers add: words score by their own embeddings, and each would be followed by itself.
_LOUDNESS = 8.0


def pi0_fast_recipe(options: Options) -> Recipe:
    """A random pi0-FAST; settings below ``paligemma`` are sizes of its networks."""
    config = _config(options)
    apply_options(config, _SIZE_FIELDS, "pi0_fast", options)
    fast_words = config.pop("fast_words")
    _finish(config, fast_words, options)
    make = WeightMaker(options.seed)
    words = gemma_tokenizer(config[_SIZES]["text_config"]["vocab_size"])
    _add_networks(make, config, fast_words, words["model"]["vocab"]["|"])
    files = {
        TOKENIZER_JSON: words,
        f"{ACTION_TOKENIZER_FOLDER}/{TOKENIZER_JSON}": fast_tokenizer(options.seed, fast_words),
        f"{ACTION_TOKENIZER_FOLDER}/{PROCESSOR_CONFIG}": fast_processor(fast_words),
    }
    before = features.preprocessor_steps(config)
    # The state is normalized before it is told.
    *first, device, normalizer = before
    steps = [
        *first,
        _step("relative_actions_processor", enabled=False),
        normalizer,
        *_text_steps(config),
        device,
    ]
    unnormalizer, to_device = features.postprocessor_steps(config)
    after = [unnormalizer, _step("absolute_actions_processor", enabled=False), to_device]
    return Recipe(config, make.tensors, steps, after, files)


def _config(options: Options) -> dict[str, Any]:
    """The configuration as LeRobot writes it, and this package's fields of the networks' sizes."""
    text, vision = (_TEXT_FULL, _VISION_FULL) if options.full_size else (_TEXT, _VISION)
    return {
        **features.common_config("pi0_fast", options),
        "chunk_size": 50,
        "n_action_steps": None,
        "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"},
        "paligemma_variant": "gemma_2b",
        "action_expert_variant": "gemma_300m",
        "dtype": "float32",
        "max_state_dim": 32,
        "max_action_dim": 32,
        "max_action_tokens": 256,
        "use_relative_actions": False,
        "image_resolution": [224, 224],
        "empty_cameras": 0,
        "tokenizer_max_length": 200,
        "text_tokenizer_name": ".",
        "action_tokenizer_name": ACTION_TOKENIZER_FOLDER,
        "temperature": 0.0,
        "max_decoding_steps": 256,
        "fast_skip_tokens": 128,
        # A random network begins no answer as a trained one does.
        "validate_action_token_prefix": False,
        "use_kv_cache": True,
        _SIZES: {"text_config": dict(text), "vision_config": dict(vision)},
        "fast_words": 512,
    }


def _finish(config: dict[str, Any], fast_words: int, options: Options) -> None:
    """Fill in what follows from the rest, and refuse what cannot be built."""
    if config["n_action_steps"] is None:
        config["n_action_steps"] = config["chunk_size"]
    if not options.cameras or not options.state_dim or options.env_state_dim:
        raise OptionError("pi0_fast needs a camera and a state, and has no environment state")
    for part, fields in config[_SIZES].items():
        for name, value in fields.items():
            if value < 1:
                raise OptionError(f"{_SIZES}.{part}.{name} is {value}, expected 1 or more")
    text, vision = config[_SIZES]["text_config"], config[_SIZES]["vision_config"]
    if text["num_attention_heads"] % text["num_key_value_heads"] or text["head_dim"] % 2:
        raise OptionError(
            f"{_SIZES}.text_config: {text['num_attention_heads']} heads of {text['head_dim']} with "
            f"{text['num_key_value_heads']} for keys, expected a multiple of these, of an even width"
        )
    if vision["hidden_size"] % vision["num_attention_heads"]:
        raise OptionError(
            f"{_SIZES}.vision_config.hidden_size is {vision['hidden_size']}, expected a multiple of "
            f"{vision['num_attention_heads']} heads"
        )
    height, width = config["image_resolution"]
    if height != width or height % vision["patch_size"]:
        expected = f"a square, a multiple of {vision['patch_size']} pixels"
        raise OptionError(f"image_resolution is {config['image_resolution']}, expected {expected}")
    if fast_words + config["fast_skip_tokens"] > text["vocab_size"]:
        raise OptionError(
            f"fast_words is {fast_words}, expected at most vocab_size ({text['vocab_size']}) less "
            f"fast_skip_tokens ({config['fast_skip_tokens']})"
        )


def _add_networks(make: WeightMaker, config: dict[str, Any], fast_words: int, end: int) -> None:
    text, vision = config[_SIZES]["text_config"], config[_SIZES]["vision_config"]
    width, vocabulary = text["hidden_size"], text["vocab_size"]
    add_siglip(
        make,
        f"{_BODY}.model.vision_tower.vision_model",
        {**vision, "image_size": config["image_resolution"][0]},
    )
    add_linear(make, f"{_BODY}.model.multi_modal_projector.linear", vision["hidden_size"], width)
    body = f"{_BODY}.model.language_model"
    norms = [f"{body}.norm"]
    for index in range(text["num_hidden_layers"]):
        layer = f"{body}.layers.{index}"
        add_llama_layer(make, layer, text, width, text["intermediate_size"])
        make.tensors[f"{layer}.mlp.down_proj.weight"] *= _LOUDNESS
        norms += [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
    for norm in norms:  # their gains less 1
        make.uniform(f"{norm}.weight", (width,), 0.1)
    # Words are multiplied by the root of the width.
    table = make.draw(f"{_BODY}.lm_head.weight", (vocabulary, width), -1, 1)
    table *= (3 / width) ** 0.5
    last = vocabulary - config["fast_skip_tokens"]
    said = [*range(last - fast_words, last), end]
    quiet = np.setdiff1d(np.arange(vocabulary), said)
    table[quiet] *= _OTHER_WORDS
    make.tensors[f"{_BODY}.lm_head.weight"] = table


def _text_steps(config: dict[str, Any]) -> list[dict[str, Any]]:
    name, actions = config["text_tokenizer_name"], config["action_tokenizer_name"]
    return [
        _step("pi0_fast_prepare_state_tokenizer_processor_step", max_state_dim=32, task_key="task"),
        _step(
            "tokenizer_processor",
            max_length=config["tokenizer_max_length"],
            task_key="task",
            padding_side="right",
            padding="max_length",
            truncation=True,
            tokenizer_name=name,
        ),
        _step(
            "action_tokenizer_processor",
            action_tokenizer_name=actions,
            max_action_tokens=config["max_action_tokens"],
            fast_skip_tokens=config["fast_skip_tokens"],
            paligemma_tokenizer_name=name,
        ),
    ]


def _step(name: str, **config: Any) -> dict[str, Any]:
    return {"registry_name": name, "config": config}
