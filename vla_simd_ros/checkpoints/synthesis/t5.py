"""A random T5 text encoder, with the names and scales of the transformers library."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

SMALL: dict[str, Any] = {
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "vocab_size": 32128,
}

BASE: dict[str, Any] = {**SMALL, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}


def add_t5_encoder(make: WeightMaker, prefix: str, config: dict[str, Any]) -> None:
    """Add the token table and the encoder's blocks under ``prefix``."""
    width, hidden = config["d_model"], config["d_ff"]
    inner = config["num_heads"] * config["d_kv"]
    make.embedding(f"{prefix}.shared", config["vocab_size"], width)
    for index in range(config["num_layers"]):
        block = f"{prefix}.encoder.block.{index}"
        attention = f"{block}.layer.0.SelfAttention"
        # Unscaled dot products: the query's initial values carry the scale.
        make.spread(f"{attention}.q.weight", (inner, width), (width * config["d_kv"]) ** -0.5)
        make.spread(f"{attention}.k.weight", (inner, width), width**-0.5)
        make.spread(f"{attention}.v.weight", (inner, width), width**-0.5)
        make.spread(f"{attention}.o.weight", (width, inner), inner**-0.5)
        if index == 0:
            buckets = config["relative_attention_num_buckets"]
            make.spread(f"{attention}.relative_attention_bias.weight", (buckets, config["num_heads"]), 1.0)
        feedforward = f"{block}.layer.1.DenseReluDense"
        make.spread(f"{feedforward}.wi.weight", (hidden, width), width**-0.5)
        make.spread(f"{feedforward}.wo.weight", (width, hidden), hidden**-0.5)
        for layer in range(2):
            make.uniform(f"{block}.layer.{layer}.layer_norm.weight", (width,), 0.1, 1.0)
    make.uniform(f"{prefix}.encoder.final_layer_norm.weight", (width,), 0.1, 1.0)
