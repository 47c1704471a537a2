"""Encoder and decoder of action-chunking transformers, in PyTorch.

Sequences are ``[B, rows, width]``. Positions are added to queries and keys, never to values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LayerConfig:
    """What all layers of one network share."""

    dim_model: int = 512
    n_heads: int = 8
    dim_feedforward: int = 3200
    feedforward_activation: str = "relu"
    dropout: float = 0.1
    pre_norm: bool = False


class Encoder(nn.Module):
    """Self-attention layers, with a final norm where the layers normalize first."""

    def __init__(self, config: LayerConfig, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(layers))
        self.norm = nn.LayerNorm(config.dim_model) if config.pre_norm else nn.Identity()

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor | None) -> Tensor:
        """``padding`` ``[B, rows]`` is true for rows that nobody may attend to."""
        for layer in self.layers:
            x = layer(x, positions, padding)
        normed: Tensor = self.norm(x)
        return normed


class Decoder(nn.Module):
    """Self- and cross-attention layers, and a final norm."""

    def __init__(self, config: LayerConfig, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(layers))
        self.norm = nn.LayerNorm(config.dim_model)

    def forward(
        self, x: Tensor, memory: Tensor, positions: Tensor, memory_positions: Tensor, padding: Tensor | None
    ) -> Tensor:
        """``padding`` ``[B, rows of memory]`` is true for memory that nobody may attend to."""
        for layer in self.layers:
            x = layer(x, memory, positions, memory_positions, padding)
        normed: Tensor = self.norm(x)
        return normed


class _Layer(nn.Module):
    """The feed-forward part and the placing of norms, common to both kinds of layer."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.linear1 = nn.Linear(config.dim_model, config.dim_feedforward)
        self.linear2 = nn.Linear(config.dim_feedforward, config.dim_model)
        self.activation = {"relu": torch.relu, "gelu": nn.functional.gelu}[config.feedforward_activation]
        self.drop = nn.Dropout(config.dropout)
        self.pre_norm = config.pre_norm

    def feed_forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear2(self.drop(self.activation(self.linear1(x))))
        return y

    def before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.pre_norm else x

    def after(self, norm: nn.Module, x: Tensor) -> Tensor:
        return x if self.pre_norm else norm(x)


class EncoderLayer(_Layer):
    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.self_attn = _attention(config)
        self.norm1 = nn.LayerNorm(config.dim_model)
        self.norm2 = nn.LayerNorm(config.dim_model)

    def forward(self, x: Tensor, positions: Tensor, padding: Tensor | None) -> Tensor:
        value = self.before(self.norm1, x)
        placed = value + positions
        attended, _ = self.self_attn(placed, placed, value, key_padding_mask=padding, need_weights=False)
        x = self.after(self.norm1, x + self.drop(attended))
        fed = self.feed_forward(self.before(self.norm2, x))
        return self.after(self.norm2, x + self.drop(fed))


class DecoderLayer(_Layer):
    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.self_attn = _attention(config)
        self.multihead_attn = _attention(config)
        self.norm1 = nn.LayerNorm(config.dim_model)
        self.norm2 = nn.LayerNorm(config.dim_model)
        self.norm3 = nn.LayerNorm(config.dim_model)

    def forward(
        self, x: Tensor, memory: Tensor, positions: Tensor, memory_positions: Tensor, padding: Tensor | None
    ) -> Tensor:
        value = self.before(self.norm1, x)
        placed = value + positions
        attended, _ = self.self_attn(placed, placed, value, need_weights=False)
        x = self.after(self.norm1, x + self.drop(attended))
        query = self.before(self.norm2, x) + positions
        attended, _ = self.multihead_attn(
            query, memory + memory_positions, memory, key_padding_mask=padding, need_weights=False
        )
        x = self.after(self.norm2, x + self.drop(attended))
        fed = self.feed_forward(self.before(self.norm3, x))
        return self.after(self.norm3, x + self.drop(fed))


def _attention(config: LayerConfig) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(config.dim_model, config.n_heads, config.dropout, batch_first=True)


def sine_positions_1d(rows: int, width: int) -> Tensor:
    """Positions ``[rows, width]``: sine in even columns, cosine in odd ones, at falling frequencies."""
    column = torch.arange(width, dtype=torch.float64)
    angle = torch.arange(rows, dtype=torch.float64)[:, None] / 10000 ** (2 * (column // 2) / width)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).float()


def sine_positions_2d(height: int, width: int, dim: int) -> Tensor:
    """Positions ``[height * width, dim]`` of a feature map, rows in the first half, columns in the second.

    Computed in float32 whatever the model's precision: they are part of what the network was trained with.
    """
    half = dim // 2
    frequency = 10000 ** (2 * (torch.arange(half, dtype=torch.float32) // 2) / half)

    def encode(count: int) -> Tensor:
        # From just above 0 to just below one full turn.
        turn = torch.arange(1, count + 1, dtype=torch.float32) / (count + 1e-6) * (2 * torch.pi)
        angle = turn[:, None] / frequency
        return torch.stack((angle[:, 0::2].sin(), angle[:, 1::2].cos()), dim=-1).flatten(1)

    rows = encode(height)[:, None, :].expand(height, width, half)
    columns = encode(width)[None, :, :].expand(height, width, half)
    return torch.cat((rows, columns), dim=-1).flatten(0, 1)
