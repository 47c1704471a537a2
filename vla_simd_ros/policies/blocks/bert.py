"""The encoder of BERT: learned positions, norms after each sub-layer, exact GELU."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.blocks.stated import Stated
from vla_simd_ros.policies.weights import Weights

MODEL_TYPE = "bert"
WORD_TABLE = "embeddings.word_embeddings.weight"
_ACTIVATIONS = ("gelu", "relu", "silu")


@dataclass(frozen=True)
class BertConfig:
    """Sizes of the encoder; ``positions`` is the longest text, ``types`` the rows of the segment table."""

    width: int
    feedforward: int
    layers: int
    heads: int
    activation: str
    eps: float
    vocabulary: int
    positions: int
    types: int


def read_bert_config(stated: Stated) -> BertConfig:
    """The sizes that ``stated`` has. Raises CheckpointError for another network, or a variant of BERT."""
    if stated.model_type != MODEL_TYPE:
        raise stated.misfit("model_type", f"'{stated.model_type}'", f"'{MODEL_TYPE}'")
    stated.choice("position_embedding_type", "absolute", ("absolute",))
    width = stated.size("hidden_size", 768)
    return BertConfig(
        width=width,
        feedforward=stated.size("intermediate_size", 3072),
        layers=stated.size("num_hidden_layers", 12),
        heads=stated.heads(width, 12),
        activation=stated.choice("hidden_act", "gelu", _ACTIVATIONS),
        eps=stated.number("layer_norm_eps", 1e-12),
        vocabulary=stated.size("vocab_size", 30522),
        positions=stated.size("max_position_embeddings", 512),
        types=stated.size("type_vocab_size", 2),
    )


def bert_encoder(b: Builder, ids: Tensor, config: BertConfig, weights: Weights) -> Tensor:
    """The last hidden state [n, width] of the token ids [n], all of one segment."""
    with b.block("text.0"):
        x = _embed(b, ids, config, weights)
    for index in range(config.layers):
        with b.block(f"text.{index}"):
            x = _layer(b, x, config, weights, f"encoder.layer.{index}")
    return x


def _embed(b: Builder, ids: Tensor, config: BertConfig, weights: Weights) -> Tensor:
    (count,) = ids.shape
    x = b.embedding(weights.constant(b, WORD_TABLE, config.vocabulary, config.width), ids, name="embedded")
    types = weights.constant(b, "embeddings.token_type_embeddings.weight", config.types, config.width)
    segment = b.slice(types, axis=0, start=0, stop=1, name="segment")
    table = weights.constant(b, "embeddings.position_embeddings.weight", config.positions, config.width)
    positions = b.slice(table, axis=0, start=0, stop=count, name="position_rows")
    vector = b.reshape(segment, (config.width,), name="segment.vector")
    x = b.add(x, b.add(positions, vector, name="positions"), name="positioned")
    return layer_norm(b, x, weights, "embeddings.LayerNorm", eps=config.eps, name="embedded_norm")


def _layer(b: Builder, x: Tensor, config: BertConfig, weights: Weights, prefix: str) -> Tensor:
    q, k, v = (
        linear(b, x, weights, f"{prefix}.attention.self.{part}", config.width, name=f"self_attn.{part[0]}")
        for part in ("query", "key", "value")
    )
    scale = (config.width // config.heads) ** -0.5
    y = b.attention(q, k, v, heads=config.heads, scale=scale, name="self_attn.attention")
    output = f"{prefix}.attention.output"
    y = linear(b, y, weights, f"{output}.dense", config.width, name="self_attn.out")
    x = b.add(x, y, name="norm1.sum")
    x = layer_norm(b, x, weights, f"{output}.LayerNorm", eps=config.eps, name="norm1")
    y = linear(b, x, weights, f"{prefix}.intermediate.dense", config.feedforward, name="linear1")
    y = b.activation(config.activation, y, name=config.activation)
    y = linear(b, y, weights, f"{prefix}.output.dense", config.width, name="linear2")
    x = b.add(x, y, name="norm2.sum")
    return layer_norm(b, x, weights, f"{prefix}.output.LayerNorm", eps=config.eps, name="norm2")
