"""A random BERT, with the names of the transformers library."""

from __future__ import annotations

from typing import Any

from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker

BASE: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
MINILM: dict[str, Any] = {
    **BASE,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
}
_EMBEDDINGS = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}


def add_bert(make: WeightMaker, prefix: str, config: dict[str, Any]) -> None:
    """Add the embeddings, the encoder's layers and the pooler, which no policy reads, under ``prefix``."""
    width, hidden = config["hidden_size"], config["intermediate_size"]
    for table, rows in _EMBEDDINGS.items():
        make.embedding(f"{prefix}.embeddings.{table}_embeddings", config[rows], width)
    make.layer_norm(f"{prefix}.embeddings.LayerNorm", width)
    for index in range(config["num_hidden_layers"]):
        layer = f"{prefix}.encoder.layer.{index}"
        for part in ("query", "key"):
            make.sharp_linear(f"{layer}.attention.self.{part}", width)
        make.unit_linear(f"{layer}.attention.self.value", width, width)
        make.unit_linear(f"{layer}.attention.output.dense", width, width)
        make.layer_norm(f"{layer}.attention.output.LayerNorm", width)
        make.unit_linear(f"{layer}.intermediate.dense", width, hidden)
        make.unit_linear(f"{layer}.output.dense", hidden, width)
        make.layer_norm(f"{layer}.output.LayerNorm", width)
    make.unit_linear(f"{prefix}.pooler.dense", width, width)
