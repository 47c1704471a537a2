"""Random checkpoints of IMPACT with action tokens: its encoder, and layers that score tokens."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis.act import SIZE_FIELDS, add_act_encoder
from vla_simd_ros.checkpoints.synthesis.impact import (
    add_instruction,
    finish_impact_config,
    finished_recipe,
    unfinished_config,
)
from vla_simd_ros.checkpoints.synthesis.options import OptionError, Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.smolvlm import add_llama_layer, add_rms_norm
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

_TOKENS = "model.tokens"
_WITHOUT = ("n_decoder_layers", "use_vae", "n_vae_encoder_layers", "kl_weight", "vae_sees_language")
_SIZE_FIELDS = {name: field for name, field in SIZE_FIELDS.items() if field not in _WITHOUT}
_POSITIVE = (
    "token_width",
    "n_token_layers",
    "token_heads",
    "token_kv_heads",
    "token_feedforward",
    "action_bins",
)
# Of scores: so large that tokens follow from what came before, as in a trained policy.
_SCORE_DEVIATION = 3.0
# Radians that an action is away from where a joint is, at most and at least at the ends of the bins.
_FARTHEST, _NEAREST = 0.5, 0.2


def impact_tokens_recipe(options: Options) -> Recipe:
    """A random IMPACT with action tokens, and its tokenizer."""
    config = impact_tokens_config(options)
    make = WeightMaker(options.seed)
    add_act_encoder(make, config, options)
    add_instruction(make, config)
    _add_token_layers(make, config, options.action_dim)
    return finished_recipe(config, make)


def impact_tokens_config(options: Options) -> dict[str, Any]:
    """Its config.json, complete and checked. Raises `OptionError`."""
    config = unfinished_config("impact_tokens", options)
    for name in _WITHOUT:
        del config[name]
    # The bins say what an action is.
    config["normalization_mapping"]["ACTION"] = "IDENTITY"
    config |= {
        "chunk_size": 8,
        "token_width": 192,
        "n_token_layers": 3,
        "token_heads": 6,
        "token_kv_heads": 6,
        "token_feedforward": 512,
        "action_bins": 256,
        "relative_actions": options.state_dim == options.action_dim,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    apply_options(config, _SIZE_FIELDS, "impact_tokens", options)
    finish_impact_config(config, options)
    _check(config, options)
    return config


def _check(config: dict[str, Any], options: Options) -> None:
    for name in _POSITIVE:
        if config[name] < 1:
            raise OptionError(f"{name} is {config[name]}, expected 1 or more")
    heads, kv_heads = config["token_heads"], config["token_kv_heads"]
    if config["token_width"] % (2 * heads):
        raise OptionError(
            f"token_width is {config['token_width']}, expected an even width for each of {heads} heads"
        )
    if heads % kv_heads:
        raise OptionError(f"token_kv_heads is {kv_heads}, expected a divisor of {heads} heads")
    if config["relative_actions"] and options.state_dim != options.action_dim:
        raise OptionError(
            f"relative_actions is true, expected a state as wide as the action ({options.action_dim})"
        )


def _add_token_layers(make: WeightMaker, config: dict[str, Any], joints: int) -> None:
    width, bins = config["token_width"], config["action_bins"]
    sizes = {
        "head_dim": width // config["token_heads"],
        "num_attention_heads": config["token_heads"],
        "num_key_value_heads": config["token_kv_heads"],
    }
    make.linear(f"{_TOKENS}.prefix_proj", config["dim_model"], width)
    make.embedding(f"{_TOKENS}.embed_tokens", bins + 1, width)
    for index in range(config["n_token_layers"]):
        add_llama_layer(make, f"{_TOKENS}.layers.{index}", sizes, width, config["token_feedforward"])
    add_rms_norm(make, f"{_TOKENS}.norm", width)
    make.spread(f"{_TOKENS}.lm_head.weight", (bins + 1, width), _SCORE_DEVIATION * width**-0.5)
    # The token that is read first never follows another, as none is trained to be followed by it.
    make.tensors[f"{_TOKENS}.lm_head.weight"][bins] = 0
    for name, low, high in (("low", -_FARTHEST, -_NEAREST), ("high", _NEAREST, _FARTHEST)):
        make.tensors[f"{_TOKENS}.action_{name}"] = make.draw(f"{_TOKENS}.action_{name}", (joints,), low, high)
