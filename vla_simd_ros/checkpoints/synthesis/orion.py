"""Random ORION checkpoints: a Llama and a generative planner."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.byte_vocabulary import byte_tokenizer
from vla_simd_ros.checkpoints.synthesis.driving import (
    ACTION_DIM,
    SIZE_FIELDS,
    add_language_model,
    add_linear,
    add_scene,
    check_driving,
    driving_config,
    text_steps,
)
from vla_simd_ros.checkpoints.synthesis.options import Options, apply_options
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON

_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 32,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": 2048,
}
_VICUNA_7B: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
}
_SCENE_QUERIES = 512
# The planner adds its steps up: each is a small one.
_STEP = 0.3


def orion_recipe(options: Options) -> Recipe:
    """A random ORION with a made-up tokenizer."""
    text = {**_LLAMA, **(_VICUNA_7B if options.full_size else {})}
    config = {
        **driving_config("orion", options, text),
        "latent_dim": 32,
        "planner_width": 512,
    }
    config["query_config"]["num_queries"] = _SCENE_QUERIES
    apply_options(config, SIZE_FIELDS, "orion", options)
    check_driving(config, options, ("latent_dim", "planner_width"))
    make = WeightMaker(options.seed)
    add_scene(make, config, options, ("scene_queries",))
    add_language_model(make, config["text_config"], biased=False)
    _add_planner(make, config)
    return Recipe(
        config,
        make.tensors,
        features.preprocessor_steps(config, text_steps(config)),
        features.postprocessor_steps(config),
        {TOKENIZER_JSON: byte_tokenizer(config["text_config"]["vocab_size"])},
    )


def _add_planner(make: WeightMaker, config: dict[str, Any]) -> None:
    width, latent, hidden = (
        config["text_config"]["hidden_size"],
        config["latent_dim"],
        config["planner_width"],
    )
    make.spread("model.tokens.planning", (1, width), 1.0)
    add_linear(make, "model.planner.mean", width, latent)
    add_linear(make, "model.planner.start", width, hidden)
    add_linear(make, "model.planner.step", hidden, ACTION_DIM, _STEP)
    for part, inputs in (("ih", latent), ("hh", hidden)):
        make.spread(f"model.planner.gru.weight_{part}", (3 * hidden, inputs), inputs**-0.5)
        make.uniform(f"model.planner.gru.bias_{part}", (3 * hidden,), 0.05)
