"""Random MindDrive checkpoints: Qwen2 under two adapters."""

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

_QWEN2: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "vocab_size": 2048,
}
_QWEN2_05B: dict[str, Any] = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "vocab_size": 151936,
}
_HEADS = ("detection", "map")
_EXPERTS = ("decision", "action")
# Of an adapter's part beside the weight that it changes.
_CHANGE = 0.3


def minddrive_recipe(options: Options) -> Recipe:
    """A random MindDrive with a made-up tokenizer of Qwen2's kind."""
    text = {**_QWEN2, **(_QWEN2_05B if options.full_size else {})}
    config = {
        **driving_config("minddrive", options, text),
        "adapter_rank": 16,
        "adapter_alpha": 32.0,
        "decisions": 7,
    }
    apply_options(config, SIZE_FIELDS, "minddrive", options)
    check_driving(config, options, ("adapter_rank", "decisions"))
    make = WeightMaker(options.seed)
    add_scene(make, config, options, _HEADS)
    add_language_model(make, config["text_config"], biased=True)
    for expert in _EXPERTS:
        _add_adapter(make, f"model.adapters.{expert}", config)
    _add_planner(make, config)
    return Recipe(
        config,
        make.tensors,
        features.preprocessor_steps(config, text_steps(config)),
        features.postprocessor_steps(config),
        {TOKENIZER_JSON: byte_tokenizer(config["text_config"]["vocab_size"])},
    )


def _add_adapter(make: WeightMaker, name: str, config: dict[str, Any]) -> None:
    text, rank = config["text_config"], config["adapter_rank"]
    width, inner = text["hidden_size"], text["intermediate_size"]
    keys = text["num_key_value_heads"] * (width // text["num_attention_heads"])
    gain = _CHANGE * rank / config["adapter_alpha"]
    for index in range(text["num_hidden_layers"]):
        for module, outputs, inputs in (
            ("self_attn.q_proj", width, width),
            ("self_attn.k_proj", keys, width),
            ("self_attn.v_proj", keys, width),
            ("self_attn.o_proj", width, width),
            ("mlp.gate_proj", inner, width),
            ("mlp.up_proj", inner, width),
            ("mlp.down_proj", width, inner),
        ):
            layer = f"{name}.layers.{index}.{module}"
            make.spread(f"{layer}.down.weight", (rank, inputs), inputs**-0.5)
            make.spread(f"{layer}.up.weight", (outputs, rank), gain * rank**-0.5)


def _add_planner(make: WeightMaker, config: dict[str, Any]) -> None:
    width, count = config["text_config"]["hidden_size"], config["chunk_size"]
    for token in ("decision", "speed", "path"):
        make.spread(f"model.tokens.{token}", (1, width), 1.0)
    make.spread("model.decision_head.weight", (config["decisions"], width), width**-0.5)
    make.spread("model.decisions.weight", (config["decisions"], width), 1.0)
    for name, columns in (("speed", 1), ("path", ACTION_DIM - 1)):
        add_linear(make, f"model.planner.{name}.linear1", width, width)
        add_linear(make, f"model.planner.{name}.linear2", width, count * columns)
