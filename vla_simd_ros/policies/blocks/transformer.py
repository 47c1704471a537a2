"""Encoder and decoder layers whose positions are added to queries and keys, never to values."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.weights import Weights

_LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a transformer; ``pre_norm`` normalizes before each sub-layer instead of after it."""

    width: int
    heads: int
    feedforward: int
    activation: str
    pre_norm: bool


@dataclass(frozen=True)
class Sequence:
    """Tokens [n, width] and their positions [n, width]."""

    tokens: Tensor
    positions: Tensor


class Transformer:
    """An encoder over a sequence and a decoder of learned queries that attends to its result."""

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    def encode(self, b: Builder, x: Sequence, layers: int) -> Tensor:
        """The sequence after ``layers`` encoder layers."""
        tokens = x.tokens
        for index in range(layers):
            with b.block(f"encoder.{index}"):
                tokens = self._encoder_layer(b, Sequence(tokens, x.positions), f"encoder.layers.{index}")
        if self._config.pre_norm:
            with b.block(f"encoder.{max(layers - 1, 0)}"):
                tokens = self._norm(b, tokens, "encoder.norm", "final_norm")
        return tokens

    def decode(
        self, b: Builder, x: Sequence, memory: Sequence, layers: int, block: str = "decoder"
    ) -> Tensor:
        """The queries after ``layers`` decoder layers and the final norm, in blocks named after ``block``."""
        tokens = x.tokens
        for index in range(layers):
            with b.block(f"{block}.{index}"):
                queries = Sequence(tokens, x.positions)
                tokens = self._decoder_layer(b, queries, memory, f"decoder.layers.{index}")
        with b.block(f"{block}.{layers - 1}"):
            return self._norm(b, tokens, "decoder.norm", "final_norm")

    def _encoder_layer(self, b: Builder, x: Sequence, prefix: str) -> Tensor:
        tokens = self._self_attention(b, x, prefix)
        return self._feedforward(b, tokens, prefix, "norm2")

    def _decoder_layer(self, b: Builder, x: Sequence, memory: Sequence, prefix: str) -> Tensor:
        tokens = self._self_attention(b, x, prefix)
        tokens = self._cross_attention(b, Sequence(tokens, x.positions), memory, prefix)
        return self._feedforward(b, tokens, prefix, "norm3")

    def _self_attention(self, b: Builder, x: Sequence, prefix: str) -> Tensor:
        y = self._norm(b, x.tokens, f"{prefix}.norm1", "norm1") if self._config.pre_norm else x.tokens
        positioned = b.add(y, x.positions, name="self_attn.positioned")
        y = self._attention(b, positioned, positioned, y, prefix, "self_attn", "self_attn")
        return self._residual(b, x.tokens, y, f"{prefix}.norm1", "norm1")

    def _cross_attention(self, b: Builder, x: Sequence, memory: Sequence, prefix: str) -> Tensor:
        y = self._norm(b, x.tokens, f"{prefix}.norm2", "norm2") if self._config.pre_norm else x.tokens
        query = b.add(y, x.positions, name="cross_attn.positioned")
        key = b.add(memory.tokens, memory.positions, name="cross_attn.memory_positioned")
        y = self._attention(b, query, key, memory.tokens, prefix, "multihead_attn", "cross_attn")
        return self._residual(b, x.tokens, y, f"{prefix}.norm2", "norm2")

    def _feedforward(self, b: Builder, x: Tensor, prefix: str, norm: str) -> Tensor:
        width, inner = self._config.width, self._config.feedforward
        y = self._norm(b, x, f"{prefix}.{norm}", norm) if self._config.pre_norm else x
        y = self._linear(b, y, f"{prefix}.linear1", inner, width, "linear1")
        y = b.activation(self._config.activation, y, name=self._config.activation)
        y = self._linear(b, y, f"{prefix}.linear2", width, inner, "linear2")
        return self._residual(b, x, y, f"{prefix}.{norm}", norm)

    def _residual(self, b: Builder, skip: Tensor, y: Tensor, norm: str, name: str) -> Tensor:
        """skip + y, normalized here unless the norm came before the sub-layer."""
        total = b.add(skip, y, name=f"{name}.sum")
        return total if self._config.pre_norm else self._norm(b, total, norm, name)

    def _attention(
        self, b: Builder, query: Tensor, key: Tensor, value: Tensor, prefix: str, stored: str, name: str
    ) -> Tensor:
        """Multi-head attention; queries', keys' and values' projections are stored as one matrix."""
        width, heads = self._config.width, self._config.heads
        module = f"{prefix}.{stored}"
        weight = self._weights.constant(b, f"{module}.in_proj_weight", 3 * width, width)
        bias = self._weights.constant(b, f"{module}.in_proj_bias", 3 * width)
        projected = []
        for index, (letter, x) in enumerate((("q", query), ("k", key), ("v", value))):
            rows = {"axis": 0, "start": index * width, "stop": (index + 1) * width}
            w = b.slice(weight, **rows, name=f"{name}.{letter}.weight")
            bias_part = b.slice(bias, **rows, name=f"{name}.{letter}.bias")
            projected.append(b.linear(x, w, bias_part, name=f"{name}.{letter}"))
        scale = (width // heads) ** -0.5
        y = b.attention(*projected, heads=heads, scale=scale, name=f"{name}.attention")
        return self._linear(b, y, f"{module}.out_proj", width, width, f"{name}.out")

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int, inputs: int, name: str) -> Tensor:
        weight = self._weights.constant(b, f"{module}.weight", outputs, inputs)
        bias = self._weights.constant(b, f"{module}.bias", outputs)
        return b.linear(x, weight, bias, name=name)

    def _norm(self, b: Builder, x: Tensor, module: str, name: str) -> Tensor:
        weight = self._weights.constant(b, f"{module}.weight", self._config.width)
        bias = self._weights.constant(b, f"{module}.bias", self._config.width)
        return b.layer_norm(x, weight, bias, eps=_LAYER_NORM_EPS, name=name)
