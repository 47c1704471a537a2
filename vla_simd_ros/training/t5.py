"""The T5 text encoder in PyTorch, with the parameter names of published T5 checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class T5Config:
    """Sizes of the encoder; the defaults are T5-small's."""

    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6
    vocab_size: int = 32128


class T5Encoder(nn.Module):
    """Token ids ``[B, n]`` and mask ``[B, n]`` (true for text) to states ``[B, n, d_model]``."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = _Stack(config)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.encoder(self.shared(ids), mask)
        return states


class _Stack(nn.Module):
    def __init__(self, config: T5Config) -> None:
        super().__init__()
        blocks = [_Block(config, first=i == 0) for i in range(config.num_layers)]
        self.block = nn.ModuleList(blocks)
        # The first block's table of distances serves them all.
        self.position_bias = blocks[0].position_bias
        self.final_layer_norm = _RmsNorm(config.d_model, config.layer_norm_epsilon)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        bias = self.position_bias(x.shape[1])
        bias = bias.masked_fill(~mask[:, None, None, :], torch.finfo(x.dtype).min)
        for block in self.block:
            x = block(x, bias)
        normed: Tensor = self.final_layer_norm(x)
        return normed


class _Block(nn.Module):
    def __init__(self, config: T5Config, first: bool) -> None:
        super().__init__()
        attention = _AttentionLayer(config, first)
        self.layer = nn.ModuleList([attention, _FeedForwardLayer(config)])
        self.position_bias = attention.SelfAttention.position_bias

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        y: Tensor = self.layer[1](self.layer[0](x, bias))
        return y


class _AttentionLayer(nn.Module):
    def __init__(self, config: T5Config, first: bool) -> None:
        super().__init__()
        self.SelfAttention = _Attention(config, first)
        self.layer_norm = _RmsNorm(config.d_model, config.layer_norm_epsilon)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        y: Tensor = x + self.SelfAttention(self.layer_norm(x), bias)
        return y


class _FeedForwardLayer(nn.Module):
    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.DenseReluDense = nn.ModuleDict(
            {
                "wi": nn.Linear(config.d_model, config.d_ff, bias=False),
                "wo": nn.Linear(config.d_ff, config.d_model, bias=False),
            }
        )
        self.layer_norm = _RmsNorm(config.d_model, config.layer_norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        dense = self.DenseReluDense
        y: Tensor = x + dense["wo"](torch.relu(dense["wi"](self.layer_norm(x))))
        return y


class _Attention(nn.Module):
    """Dot products without scale, plus a learned bias by distance."""

    def __init__(self, config: T5Config, first: bool) -> None:
        super().__init__()
        inner = config.num_heads * config.d_kv
        self.heads = config.num_heads
        self.buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.q = nn.Linear(config.d_model, inner, bias=False)
        self.k = nn.Linear(config.d_model, inner, bias=False)
        self.v = nn.Linear(config.d_model, inner, bias=False)
        self.o = nn.Linear(inner, config.d_model, bias=False)
        if first:
            self.relative_attention_bias = nn.Embedding(self.buckets, config.num_heads)

    def position_bias(self, length: int) -> Tensor:
        """Bias ``[1, heads, length, length]`` by the distance from query to key."""
        position = torch.arange(length, device=self.q.weight.device)
        distance = position[None, :] - position[:, None]
        bucket = distance_bucket(distance, self.buckets, self.max_distance)
        table: Tensor = self.relative_attention_bias(bucket)
        return table.permute(2, 0, 1)[None]

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (self._split(projection(x)) for projection in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) + bias, dim=-1)
        y: Tensor = self.o((weights @ v).transpose(1, 2).flatten(2))
        return y

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class _RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def distance_bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Bucket of each signed distance: one half for either direction, exact near, logarithmic far.

    The logarithm is taken in float32 whatever the model's precision: the bucket is an index, and the
    reference computes it so.
    """
    half = buckets // 2
    exact = half // 2
    size = distance.abs()
    far = torch.log(size.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (half - exact)
    far = (exact + far.to(torch.int64)).clamp(max=half - 1)
    return torch.where(size < exact, size, far) + half * (distance > 0)
