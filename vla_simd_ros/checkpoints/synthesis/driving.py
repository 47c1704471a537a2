"""Random driving planners: what MindDrive and ORION have in common, in a size that a laptop computes in a
second, or in the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.options import Camera, OptionError, Options
from vla_simd_ros.checkpoints.synthesis.smolvlm import add_llama_layer, add_rms_norm
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

STATE_DIM = 8
ACTION_DIM = 4
_VIEWS = ("front", "front_left", "front_right", "back", "back_left", "back_right")

_VISION: dict[str, Any] = {
    "model_type": "eva02",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "intermediate_size": 1024,
    "patch_size": 16,
    "window_size": 16,
    "global_every": 3,
    "layer_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
_VISION_FULL: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 2730,
}
_QUERIES: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
    "num_queries": 256,
}
SIZE_FIELDS = {
    "chunk_size": "chunk_size",
    "encoder_layers": "vision_config.num_hidden_layers",
    "decoder_layers": "text_config.num_hidden_layers",
    "dim_model": "text_config.hidden_size",
    "heads": "text_config.num_attention_heads",
    "feedforward": "text_config.intermediate_size",
}
_COLOURS = 3
# Of queries and keys: attention that is nearly uniform would make all scenes alike.
_SHARPNESS = 1.5
# Of what a layer adds to a residual sum.
_RESIDUAL_SCALE = 0.5


def driving_options(full_size: bool) -> Options:
    """The vehicle that a driving planner has where nothing else is asked for."""
    height, width = (320, 640) if full_size else (160, 320)
    cameras = tuple(Camera(name, height, width) for name in _VIEWS)
    return Options(cameras=cameras, state_dim=STATE_DIM, action_dim=ACTION_DIM, full_size=full_size)


def driving_config(policy: str, options: Options, text: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the language model ``text``, before options are applied."""
    return {
        **features.common_config(policy, options),
        "chunk_size": 20,
        "n_action_steps": None,
        "normalization_mapping": features.normalization_mapping(options),
        "tokenizer_max_length": 76,
        "vision_config": {**_VISION, **(_VISION_FULL if options.full_size else {})},
        "query_config": dict(_QUERIES),
        "text_config": text,
    }


def check_driving(config: dict[str, Any], options: Options, sizes: Sequence[str]) -> None:
    """Fill in what follows from the rest, and refuse what cannot be built; ``sizes`` are fields of the
    policy's own."""
    if config["n_action_steps"] is None:
        config["n_action_steps"] = config["chunk_size"]
    robot = (("state-dim", options.state_dim, STATE_DIM), ("action-dim", options.action_dim, ACTION_DIM))
    for name, value, expected in robot:
        if value != expected:
            raise OptionError(f"{name} is {value}, a vehicle's is {expected}")
    if options.env_state_dim or not options.cameras:
        raise OptionError(f"{config['type']} needs a camera, and has no environment state")
    for name in sizes:
        if config[name] < 1:
            raise OptionError(f"{name} is {config[name]}, expected 1 or more")
    for part in ("vision_config", "query_config", "text_config"):
        for name, value in config[part].items():
            if isinstance(value, int) and value < 1:
                raise OptionError(f"{part}.{name} is {value}, expected 1 or more")
        heads = config[part]["num_attention_heads"]
        if config[part]["hidden_size"] % heads:
            raise OptionError(
                f"{part}.hidden_size is {config[part]['hidden_size']}, expected a multiple of {heads} heads"
            )
    text, patch = config["text_config"], config["vision_config"]["patch_size"]
    if text["num_attention_heads"] % text["num_key_value_heads"]:
        raise OptionError(
            f"text_config.num_key_value_heads is {text['num_key_value_heads']}, expected a divisor of "
            f"num_attention_heads ({text['num_attention_heads']})"
        )
    for camera in options.cameras:
        if camera.height % patch or camera.width % patch:
            raise OptionError(
                f"camera '{camera.name}': size is {camera.height}x{camera.width}, "
                f"expected multiples of vision_config.patch_size ({patch})"
            )


def add_scene(make: WeightMaker, config: dict[str, Any], options: Options, heads: tuple[str, ...]) -> None:
    """The vision tower, the heads, and the projections to the language model."""
    vision, queries = config["vision_config"], config["query_config"]
    width, text = queries["hidden_size"], config["text_config"]["hidden_size"]
    camera = options.cameras[0]
    patches = (camera.height // vision["patch_size"]) * (camera.width // vision["patch_size"])
    _add_vision(make, "model.vision", vision, patches)
    add_linear(make, "model.image_proj", vision["hidden_size"], width)
    make.spread("model.camera_positions", (len(options.cameras) * patches, width), 1.0)
    for name in heads:
        make.spread(f"model.{name}.queries", (queries["num_queries"], width), 1.0)
        for index in range(queries["num_hidden_layers"]):
            _add_decoder_layer(
                make, f"model.{name}.decoder.layers.{index}", width, queries["intermediate_size"]
            )
        make.layer_norm(f"model.{name}.decoder.norm", width)
        add_linear(make, f"model.{name}.proj", width, text)
    # Of the state, only what moves is seen.
    add_linear(make, "model.ego_proj", 3, text)


def add_language_model(make: WeightMaker, text: dict[str, Any], biased: bool) -> None:
    """Word embeddings, layers and the final norm."""
    width, head = text["hidden_size"], text["hidden_size"] // text["num_attention_heads"]
    make.spread("model.text.embed_tokens.weight", (text["vocab_size"], width), 1.0)
    for index in range(text["num_hidden_layers"]):
        layer = f"model.text.layers.{index}"
        add_llama_layer(make, layer, {**text, "head_dim": head}, width, text["intermediate_size"])
        if biased:
            keys = text["num_key_value_heads"] * head
            for part, outputs in (("q", width), ("k", keys), ("v", keys)):
                make.uniform(f"{layer}.self_attn.{part}_proj.bias", (outputs,), 0.1)
    add_rms_norm(make, "model.text.norm", width)


def add_linear(make: WeightMaker, name: str, inputs: int, outputs: int, gain: float = 1.0) -> None:
    """A linear layer that keeps the size of activations but for the gain."""
    make.spread(f"{name}.weight", (outputs, inputs), gain * inputs**-0.5)
    make.uniform(f"{name}.bias", (outputs,), 0.05)


def text_steps(config: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The preprocessor's step that turns an instruction into tokens."""
    settings = {
        "max_length": config["tokenizer_max_length"],
        "task_key": "task",
        "padding_side": "right",
        "padding": "longest",
        "truncation": True,
        "tokenizer_name": "tokenizer",
    }
    return ({"registry_name": "tokenizer_processor", "config": settings},)


def _add_vision(make: WeightMaker, name: str, config: dict[str, Any], patches: int) -> None:
    width, patch, inner = config["hidden_size"], config["patch_size"], config["intermediate_size"]
    make.spread(f"{name}.patch_embed.weight", (width, _COLOURS, patch, patch), (_COLOURS * patch**2) ** -0.5)
    make.uniform(f"{name}.patch_embed.bias", (width,), 0.05)
    make.spread(f"{name}.pos_embed", (patches, width), 0.5)
    for index in range(config["num_hidden_layers"]):
        layer = f"{name}.layers.{index}"
        for part, gain in (
            ("q_proj", _SHARPNESS),
            ("k_proj", _SHARPNESS),
            ("v_proj", 1.0),
            ("proj", _RESIDUAL_SCALE),
        ):
            make.spread(f"{layer}.attn.{part}.weight", (width, width), gain * width**-0.5)
            if part != "k_proj":
                make.uniform(f"{layer}.attn.{part}.bias", (width,), 0.05)
        add_linear(make, f"{layer}.mlp.w1", width, inner)
        add_linear(make, f"{layer}.mlp.w2", width, inner)
        add_linear(make, f"{layer}.mlp.w3", inner, width, _RESIDUAL_SCALE)
        make.layer_norm(f"{layer}.mlp.ffn_ln", inner)
        make.layer_norm(f"{layer}.norm1", width)
        make.layer_norm(f"{layer}.norm2", width)
    make.layer_norm(f"{name}.norm", width)


def _add_decoder_layer(make: WeightMaker, name: str, width: int, hidden: int) -> None:
    make.attention(f"{name}.self_attn", width)
    make.attention(f"{name}.multihead_attn", width)
    add_linear(make, f"{name}.linear1", width, hidden)
    add_linear(make, f"{name}.linear2", hidden, width)
    for norm in ("norm1", "norm2", "norm3"):
        make.layer_norm(f"{name}.{norm}", width)
