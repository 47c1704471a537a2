"""A random SmolVLM2: its configuration, its processor's, and weights that keep every part at work."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis.byte_vocabulary import (
    AROUND_IMAGE,
    BEGINNING,
    END_OF_TEXT,
    END_OF_UTTERANCE,
    GLOBAL_IMAGE,
    IMAGE,
    PADDING,
    SPECIAL,
)
from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

_SIZES = {
    "text_config": (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
    ),
    "vision_config": (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "image_size",
        "patch_size",
    ),
}
# Sharper than freshly initialized attention, which is nearly uniform: what is seen then matters little.
_SHARPNESS = 1.5


def smolvlm_config() -> dict[str, Any]:
    """config.json of SmolVLM2-500M."""
    return {
        "architectures": ["SmolVLMForConditionalGeneration"],
        "model_type": "smolvlm",
        "image_token_id": SPECIAL.index(IMAGE),
        "pad_token_id": SPECIAL.index(PADDING),
        "scale_factor": 4,
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "llama",
            "hidden_size": 960,
            "intermediate_size": 2560,
            "num_hidden_layers": 32,
            "num_attention_heads": 15,
            "num_key_value_heads": 5,
            "head_dim": 64,
            "rms_norm_eps": 1e-05,
            "rope_theta": 100000.0,
            "vocab_size": 49280,
            "max_position_embeddings": 8192,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        },
        "vision_config": {
            "model_type": "smolvlm_vision",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 512,
            "patch_size": 16,
            "layer_norm_eps": 1e-06,
        },
    }


def check_smolvlm_config(config: dict[str, Any]) -> None:
    """Raise `OptionError` for sizes that do not fit together."""
    for part, names in _SIZES.items():
        for name in names:
            if config[part][name] < 1:
                raise OptionError(f"vlm.{part}.{name} is {config[part][name]}, expected 1 or more")
    text, vision = config["text_config"], config["vision_config"]
    if text["num_attention_heads"] % text["num_key_value_heads"] or text["head_dim"] % 2:
        raise OptionError(
            f"vlm.text_config: {text['num_attention_heads']} heads of {text['head_dim']} with "
            f"{text['num_key_value_heads']} for keys, expected a multiple of these, of an even width"
        )
    for part, sizes in (("text_config", text), ("vision_config", vision)):
        if sizes["hidden_size"] % sizes["num_attention_heads"]:
            raise OptionError(
                f"vlm.{part}.hidden_size is {sizes['hidden_size']}, expected a multiple of "
                f"{sizes['num_attention_heads']} heads"
            )


def processor_files() -> dict[str, Any]:
    """What the transformers library asks for beside config.json and tokenizer.json."""
    marks = {
        "fake_image_token": AROUND_IMAGE,
        "image_token": IMAGE,
        "end_of_utterance_token": END_OF_UTTERANCE,
        "global_image_token": GLOBAL_IMAGE,
    }
    frames = {"longest_edge": 512}
    return {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGINNING,
            "eos_token": END_OF_UTTERANCE,
            "unk_token": END_OF_TEXT,
            "pad_token": PADDING,
            "extra_special_tokens": marks,
        },
        "processor_config.json": {
            "processor_class": "SmolVLMProcessor",
            "image_seq_len": 64,
            "image_processor": {"image_processor_type": "SmolVLMImageProcessor"},
            "video_processor": {
                "video_processor_type": "SmolVLMVideoProcessor",
                "size": frames,
                "max_image_size": frames,
                "do_sample_frames": False,
                "fps": 1,
                "num_frames": 64,
            },
        },
    }


def add_smolvlm(make: WeightMaker, prefix: str, config: dict[str, Any], layers: int) -> None:
    """Add the model under ``prefix``, with the first ``layers`` of its text layers."""
    text, vision = config["text_config"], config["vision_config"]
    add_siglip(make, f"{prefix}.model.vision_model", vision)
    width = text["hidden_size"]
    shuffled = vision["hidden_size"] * config["scale_factor"] ** 2
    # Embeddings of images and words are multiplied by the root of the width.
    projection = f"{prefix}.model.connector.modality_projection.proj.weight"
    make.spread(projection, (width, shuffled), (shuffled * width) ** -0.5)
    body = f"{prefix}.model.text_model"
    make.spread(f"{body}.embed_tokens.weight", (text["vocab_size"], width), width**-0.5)
    for index in range(layers):
        add_llama_layer(make, f"{body}.layers.{index}", text, width, text["intermediate_size"])
    add_rms_norm(make, f"{body}.norm", width)
    make.spread(f"{prefix}.lm_head.weight", (text["vocab_size"], width), width**-0.5)


def add_llama_layer(
    make: WeightMaker,
    name: str,
    text: dict[str, Any],
    width: int,
    feedforward: int,
    memory_width: int | None = None,
) -> None:
    """A layer of ``width``; keys and values are projected from rows of ``memory_width`` (None: its own)."""
    head = text["head_dim"]
    queries, keys = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    seen = width if memory_width is None else memory_width
    for letter, outputs, inputs, gain in (
        ("q", queries, width, _SHARPNESS),
        ("k", keys, seen, _SHARPNESS),
        ("v", keys, seen, 1.0),
        ("o", width, queries, 1.0),
    ):
        make.spread(f"{name}.self_attn.{letter}_proj.weight", (outputs, inputs), gain * inputs**-0.5)
    for part in ("gate", "up"):
        make.spread(f"{name}.mlp.{part}_proj.weight", (feedforward, width), width**-0.5)
    make.spread(f"{name}.mlp.down_proj.weight", (width, feedforward), feedforward**-0.5)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        add_rms_norm(make, f"{name}.{norm}", width)


def add_rms_norm(make: WeightMaker, name: str, width: int) -> None:
    """A norm's gains."""
    make.uniform(f"{name}.weight", (width,), 0.1, 1.0)


def add_siglip(make: WeightMaker, name: str, config: dict[str, Any]) -> None:
    """A vision tower."""
    width, patch, inner = config["hidden_size"], config["patch_size"], config["intermediate_size"]
    inputs = 3 * patch**2
    make.spread(f"{name}.embeddings.patch_embedding.weight", (width, 3, patch, patch), 2 * inputs**-0.5)
    make.spread(f"{name}.embeddings.patch_embedding.bias", (width,), 0.1)
    grid = config["image_size"] // patch
    make.spread(f"{name}.embeddings.position_embedding.weight", (grid**2, width), 0.5)
    for index in range(config["num_hidden_layers"]):
        layer = f"{name}.encoder.layers.{index}"
        for letter, gain in (("q", _SHARPNESS), ("k", _SHARPNESS), ("v", 1.0)):
            _add_linear(make, f"{layer}.self_attn.{letter}_proj", width, width, gain)
        _add_linear(make, f"{layer}.self_attn.out_proj", width, width)
        _add_linear(make, f"{layer}.mlp.fc1", width, inner)
        _add_linear(make, f"{layer}.mlp.fc2", inner, width)
        make.layer_norm(f"{layer}.layer_norm1", width)
        make.layer_norm(f"{layer}.layer_norm2", width)
    make.layer_norm(f"{name}.post_layernorm", width)


def _add_linear(make: WeightMaker, name: str, inputs: int, outputs: int, gain: float = 1.0) -> None:
    make.spread(f"{name}.weight", (outputs, inputs), gain * inputs**-0.5)
    make.spread(f"{name}.bias", (outputs,), 0.02)
