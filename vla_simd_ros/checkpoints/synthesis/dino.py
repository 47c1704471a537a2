"""Random vision transformers DINOv3 and DINOv2, with the names of the transformers library."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

_BASE: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "patch_size": 16,
    "image_size": 224,
}
DINOV3_BASE: dict[str, Any] = {
    "model_type": "dinov3_vit",
    **_BASE,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "num_register_tokens": 4,
    "key_bias": False,
    "use_gated_mlp": False,
}
DINOV2_BASE: dict[str, Any] = {"model_type": "dinov2", **_BASE, "mlp_ratio": 4, "layer_norm_eps": 1e-6}

_COLOURS = 3
_POSITION_DEVIATION = 0.5
# Of the output of every sub-layer: the sum over all layers neither drowns the patches nor is drowned by them.
_LAYER_SCALE = 0.4


def add_dinov3(make: WeightMaker, prefix: str, config: dict[str, Any]) -> None:
    """Add tokens, patch embedding, layers and final norm under ``prefix``."""
    width, hidden = config["hidden_size"], config["intermediate_size"]
    _add_tokens(make, prefix, ("cls_token", "mask_token"), (1, 1, width))
    _add_tokens(make, prefix, ("register_tokens",), (1, config["num_register_tokens"], width))
    _add_patches(make, f"{prefix}.embeddings.patch_embeddings", config)
    for index in range(config["num_hidden_layers"]):
        layer = f"{prefix}.model.layer.{index}"
        attention = f"{layer}.attention"
        make.sharp_linear(f"{attention}.q_proj", width)
        make.sharp_linear(f"{attention}.k_proj", width, bias=config["key_bias"])
        make.unit_linear(f"{attention}.v_proj", width, width)
        make.unit_linear(f"{attention}.o_proj", width, width)
        for part in ("up_proj", *(("gate_proj",) if config["use_gated_mlp"] else ())):
            make.unit_linear(f"{layer}.mlp.{part}", width, hidden)
        make.unit_linear(f"{layer}.mlp.down_proj", hidden, width)
        _add_norms_and_scales(make, layer, width)
    make.layer_norm(f"{prefix}.norm", width)


def add_dinov2(make: WeightMaker, prefix: str, config: dict[str, Any]) -> None:
    """Add tokens, positions, patch embedding, layers and final norm under ``prefix``."""
    width = config["hidden_size"]
    hidden = int(width * config["mlp_ratio"])
    _add_tokens(make, prefix, ("cls_token",), (1, 1, width))
    _add_tokens(make, prefix, ("mask_token",), (1, width))
    rows = 1 + (config["image_size"] // config["patch_size"]) ** 2
    make.spread(f"{prefix}.embeddings.position_embeddings", (1, rows, width), _POSITION_DEVIATION)
    _add_patches(make, f"{prefix}.embeddings.patch_embeddings.projection", config)
    for index in range(config["num_hidden_layers"]):
        layer = f"{prefix}.encoder.layer.{index}"
        attention = f"{layer}.attention"
        for part in ("query", "key"):
            make.sharp_linear(f"{attention}.attention.{part}", width)
        make.unit_linear(f"{attention}.attention.value", width, width)
        make.unit_linear(f"{attention}.output.dense", width, width)
        make.unit_linear(f"{layer}.mlp.fc1", width, hidden)
        make.unit_linear(f"{layer}.mlp.fc2", hidden, width)
        _add_norms_and_scales(make, layer, width)
    make.layer_norm(f"{prefix}.layernorm", width)


def _add_tokens(make: WeightMaker, prefix: str, names: tuple[str, ...], shape: tuple[int, ...]) -> None:
    for name in names:
        make.spread(f"{prefix}.embeddings.{name}", shape, 1.0)


def _add_patches(make: WeightMaker, name: str, config: dict[str, Any]) -> None:
    width, patch = config["hidden_size"], config["patch_size"]
    deviation = (_COLOURS * patch * patch) ** -0.5
    make.spread(f"{name}.weight", (width, _COLOURS, patch, patch), deviation)
    make.uniform(f"{name}.bias", (width,), 0.1)


def _add_norms_and_scales(make: WeightMaker, layer: str, width: int) -> None:
    for index in (1, 2):
        make.layer_norm(f"{layer}.norm{index}", width)
        make.uniform(f"{layer}.layer_scale{index}.lambda1", (width,), 0.5 * _LAYER_SCALE, _LAYER_SCALE)
