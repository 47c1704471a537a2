"""The encoder of T5: relative positions as a bias on attention scores, root-mean-square norms, no biases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.weights import Weights

_MAX_DISTANCE = 128
_EPS = 1e-6
_PADDING_ID = 0
_ATTENTION = "layer.0.SelfAttention"
_DENSE = "layer.1.DenseReluDense"
_BIAS_TABLE = f"encoder.block.0.{_ATTENTION}.relative_attention_bias.weight"
_EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight")


@dataclass(frozen=True)
class T5Config:
    """Sizes of the encoder; ``buckets`` and ``max_distance`` shape the relative position bias."""

    width: int
    inner: int
    feedforward: int
    layers: int
    heads: int
    buckets: int
    max_distance: int
    eps: float
    vocabulary: int


def read_t5_config(weights: Weights, names: Mapping[str, Any], stated: Mapping[str, Any]) -> T5Config:
    """The sizes of the stored encoder, from ``stated`` where it has them, else from the weights' shapes.

    ``names`` holds the stored names without prefix. Raises CheckpointError for a gated encoder, and where
    a weight is missing.
    """
    projection = stated.get("feed_forward_proj", "relu")
    if projection != "relu":
        raise CheckpointError(f"text encoder: feed_forward_proj is '{projection}', expected 'relu'")
    buckets, heads = _matrix(weights, _BIAS_TABLE)
    vocabulary, width = _matrix(weights, embedding_name(names))
    layers = 0
    while f"encoder.block.{layers}.{_ATTENTION}.q.weight" in names:
        layers += 1
    inner, _ = _matrix(weights, f"encoder.block.0.{_ATTENTION}.q.weight")
    feedforward, _ = _matrix(weights, f"encoder.block.0.{_DENSE}.wi.weight")
    heads = _size(stated, "num_heads", heads)
    buckets = _size(stated, "relative_attention_num_buckets", buckets, least=4)
    return T5Config(
        width=_size(stated, "d_model", width),
        inner=heads * _size(stated, "d_kv", 1) if "d_kv" in stated else inner,
        feedforward=_size(stated, "d_ff", feedforward),
        layers=_size(stated, "num_layers", layers),
        heads=heads,
        buckets=buckets,
        # Farther than the distances that have a bucket each, a quarter of the buckets.
        max_distance=_size(stated, "relative_attention_max_distance", _MAX_DISTANCE, least=buckets // 4 + 1),
        eps=_epsilon(stated),
        vocabulary=_size(stated, "vocab_size", vocabulary),
    )


def _matrix(weights: Weights, name: str) -> tuple[int, int]:
    shape = weights.shape(name)
    if len(shape) != 2:
        raise CheckpointError(f"text encoder: {name} has shape {list(shape)}, expected two dimensions")
    return shape[0], shape[1]


def _size(stated: Mapping[str, Any], name: str, found: int, least: int = 1) -> int:
    """The stated size, checked, or the one ``found`` in the weights."""
    value: int = json_file.field({name: found, **stated}, name, int, "text encoder")
    if value < least:
        raise CheckpointError(f"text encoder: {name} is {value}, expected {least} or more")
    return value


def _epsilon(stated: Mapping[str, Any]) -> float:
    name = "layer_norm_epsilon"
    value = float(json_file.field({name: _EPS, **stated}, name, float, "text encoder"))
    if value < 0:
        raise CheckpointError(f"text encoder: {name} is {value}, expected 0 or more")
    return value


def embedding_name(names: Mapping[str, Any]) -> str:
    """The stored name of the word embeddings, which are tied and kept under one of two names."""
    return next((name for name in _EMBEDDINGS if name in names), _EMBEDDINGS[0])


def t5_encoder(
    b: Builder, ids: Tensor, config: T5Config, weights: Weights, embedding: str, *, padded: int = 0
) -> Tensor:
    """The last hidden state [n, width] of the token ids [n].

    With ``padded`` rows more than n, the rest are what the encoder makes of padding, for policies that read
    it: padding attends to the text and nothing attends to padding.
    """
    count = ids.shape[0]
    rows = max(count, padded)
    with b.block("text.0"):
        table = weights.constant(b, embedding, config.vocabulary, config.width)
        x = b.embedding(table, ids, name="embedded")
        if rows > count:
            padding = weights.repeated_row(b, embedding, _PADDING_ID, rows - count)
            x = b.concat([x, padding], axis=0, name="padded")
        stored = weights.array(_BIAS_TABLE, (config.buckets, config.heads))
        biases = weights.made(("relative", rows, count), lambda: _relative_bias(stored, rows, count, config))
        bias = b.constant(f"text.relative_bias.{rows}.{count}", biases)
    for index in range(config.layers):
        with b.block(f"text.{index}"):
            x = _layer(b, x, bias, config, weights, f"encoder.block.{index}")
    with b.block(f"text.{config.layers - 1}"):
        norm = weights.constant(b, "encoder.final_layer_norm.weight", config.width)
        return b.rms_norm(x, norm, eps=config.eps, name="final_norm")


def relative_position_buckets(count: int, buckets: int, max_distance: int) -> Array:
    """Bucket of (key position - query position), int64 [count, count].

    Half of the buckets are for keys after the query. In each half, the first half holds one distance each,
    the others grow logarithmically up to ``max_distance``; computed in float32, as where the model was
    trained.
    """
    position = np.arange(count)
    relative = position[None, :] - position[:, None]
    half = buckets // 2
    distance = np.abs(relative)
    exact = half // 2
    ratio = np.maximum(distance, 1).astype(np.float32) / np.float32(exact)
    steps = np.log(ratio) / np.float32(math.log(max_distance / exact)) * np.float32(half - exact)
    far = np.minimum(exact + steps.astype(np.int64), half - 1)
    return np.asarray(np.where(relative > 0, half, 0) + np.where(distance < exact, distance, far))


def _relative_bias(table: Array, rows: int, keys: int, config: T5Config) -> Array:
    """The bias on the scores of each head, float32 [heads, rows, keys]."""
    bucket = relative_position_buckets(rows, config.buckets, config.max_distance)[:, :keys]
    return np.ascontiguousarray(table[bucket].transpose(2, 0, 1))


def _layer(b: Builder, x: Tensor, bias: Tensor, config: T5Config, weights: Weights, prefix: str) -> Tensor:
    norm = weights.constant(b, f"{prefix}.layer.0.layer_norm.weight", config.width)
    y = b.rms_norm(x, norm, eps=config.eps, name="norm1")
    q, k, v = (
        _linear(b, y, weights, f"{prefix}.{_ATTENTION}.{letter}", config.inner, f"self_attn.{letter}")
        for letter in "qkv"
    )
    keys = bias.shape[2]
    k = b.slice(k, axis=0, start=0, stop=keys, name="self_attn.k.text")
    v = b.slice(v, axis=0, start=0, stop=keys, name="self_attn.v.text")
    # T5 folds the usual scale into its weights.
    y = b.attention(q, k, v, bias, heads=config.heads, scale=1.0, name="self_attn.attention")
    y = _linear(b, y, weights, f"{prefix}.{_ATTENTION}.o", config.width, "self_attn.out")
    x = b.add(x, y, name="self_attn.sum")
    norm = weights.constant(b, f"{prefix}.layer.1.layer_norm.weight", config.width)
    y = b.rms_norm(x, norm, eps=config.eps, name="norm2")
    y = _linear(b, y, weights, f"{prefix}.{_DENSE}.wi", config.feedforward, "linear1")
    y = b.activation("relu", y, name="relu")
    y = _linear(b, y, weights, f"{prefix}.{_DENSE}.wo", config.width, "linear2")
    return b.add(x, y, name="linear2.sum")


def _linear(b: Builder, x: Tensor, weights: Weights, module: str, outputs: int, name: str) -> Tensor:
    return b.linear(x, weights.constant(b, f"{module}.weight", outputs, x.shape[1]), name=name)
