"""The layers of an action-token policy in PyTorch: a prefix of rows, then tokens, under one causal mask.

Named as in the transformers library's Llama. The prefix is read once; any number of token sequences may be
read behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

_DEVIATION = 0.02


@dataclass(frozen=True)
class TokenConfig:
    """Sizes of the layers; ``action_bins`` tokens are actions, and one more is read first."""

    token_width: int = 192
    n_token_layers: int = 3
    token_heads: int = 6
    token_kv_heads: int = 6
    token_feedforward: int = 512
    action_bins: int = 256
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.token_width // self.token_heads

    @property
    def vocabulary(self) -> int:
        """Tokens there are."""
        return self.action_bins + 1

    @property
    def first(self) -> int:
        """The token that is read before the first action's."""
        return self.action_bins


@dataclass(frozen=True)
class Kept:
    """What a prefix leaves: keys and values ``[B, kv heads, rows, head]`` of each layer, which of the rows
    there are ``[B, rows]``, and how many ``[B]``."""

    layers: Sequence[tuple[Tensor, Tensor]]
    there: Tensor
    count: Tensor

    def repeated(self, times: int) -> Kept:
        """For so many batches of token sequences, one after the other."""
        layers = [(k.repeat(times, 1, 1, 1), v.repeat(times, 1, 1, 1)) for k, v in self.layers]
        return Kept(layers, self.there.repeat(times, 1), self.count.repeat(times))

    def of(self, rows: Tensor) -> Kept:
        """Of some rows of the batch."""
        layers = [(k[rows], v[rows]) for k, v in self.layers]
        return Kept(layers, self.there[rows], self.count[rows])


class TokenLayers(nn.Module):
    """Scores of the next token behind prefix rows of ``prefix_width``."""

    action_low: Tensor
    action_high: Tensor

    def __init__(self, config: TokenConfig, prefix_width: int, action_dim: int) -> None:
        super().__init__()
        self.config = config
        width = config.token_width
        self.prefix_proj = nn.Linear(prefix_width, width)
        self.embed_tokens = nn.Embedding(config.vocabulary, width)
        self.layers = nn.ModuleList(TokenLayer(config) for _ in range(config.n_token_layers))
        self.norm = RMSNorm(width, config.rms_norm_eps)
        self.lm_head = nn.Linear(width, config.vocabulary, bias=False)
        self.register_buffer("action_low", torch.zeros(action_dim))
        self.register_buffer("action_high", torch.ones(action_dim))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=_DEVIATION)

    def read_prefix(self, rows: Tensor, there: Tensor) -> Kept:
        """Read ``rows`` ``[B, n, prefix_width]``; those with ``there`` ``[B, n]`` false take no place."""
        positions = there.long().cumsum(1) - 1
        n = rows.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=rows.device).tril()
        # A row that is not there sees itself, so that its softmax is defined; nobody sees it.
        own = torch.eye(n, dtype=torch.bool, device=rows.device)
        mask = (causal & there[:, None, :] | own)[:, None]
        turn = _turn(positions.clamp(min=0), self.config, rows.dtype)
        x, kept = self.prefix_proj(rows), []
        for layer in self.layers[:-1]:
            x, own = layer(x, turn, None, mask)
            kept.append(own)
        # Nobody reads what the prefix's rows are after the last layer.
        kept.append(self.layers[-1].keys_values(x, turn))
        return Kept(kept, there, there.sum(1))

    def read_tokens(self, ids: Tensor, kept: Kept) -> Tensor:
        """Scores ``[B, n, vocabulary]`` of what follows each of ``ids`` ``[B, n]`` behind a prefix."""
        n = ids.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool, device=ids.device).tril()
        mask = torch.cat((kept.there[:, None, :].expand(-1, n, -1), causal.expand(len(ids), n, n)), dim=2)
        x = self.embed_tokens(ids)
        turn = _turn(kept.count[:, None] + torch.arange(n, device=ids.device), self.config, x.dtype)
        for layer, before in zip(self.layers, kept.layers, strict=True):
            x, _ = layer(x, turn, before, mask[:, None])
        scores: Tensor = self.lm_head(self.norm(x))
        return scores

    def score_chunks(self, tokens: Tensor, kept: Kept) -> Tensor:
        """Scores ``[B, n, vocabulary]`` of each place of a chunk's ``tokens``, from those before it."""
        first = tokens.new_full((len(tokens), 1), self.config.first)
        return self.read_tokens(torch.cat((first, tokens[:, :-1]), dim=1), kept)

    def tokenize(self, actions: Tensor) -> Tensor:
        """Bins ``[..., A]`` of values; what is outside the outermost bins is put into them."""
        share = (actions - self.action_low) / (self.action_high - self.action_low)
        return (share * self.config.action_bins).floor().clamp(0, self.config.action_bins - 1).long()

    def untokenize(self, tokens: Tensor) -> Tensor:
        """The centres of bins ``[..., A]``."""
        share = (tokens + 0.5) / self.config.action_bins
        return self.action_low + share * (self.action_high - self.action_low)


_KeysValues: TypeAlias = tuple[Tensor, Tensor]


class TokenLayer(nn.Module):
    """Self-attention over what was read before and up to each row, and a gated feed-forward layer."""

    def __init__(self, config: TokenConfig) -> None:
        super().__init__()
        width = config.token_width
        self.input_layernorm = RMSNorm(width, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(width, config.rms_norm_eps)
        self.mlp = GatedLayer(width, config.token_feedforward)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], before: _KeysValues | None, mask: Tensor
    ) -> tuple[Tensor, _KeysValues]:
        attended, own = self.self_attn(self.input_layernorm(x), turn, before, mask)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), own

    def keys_values(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> _KeysValues:
        """What later rows find of rows ``x``."""
        return self.self_attn.keys_values(self.input_layernorm(x), turn)


class Attention(nn.Module):
    def __init__(self, config: TokenConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = config.token_heads, config.token_kv_heads, config.head
        width = config.token_width
        self.q_proj = nn.Linear(width, self.heads * self.head, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * self.head, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * self.head, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head, width, bias=False)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], before: _KeysValues | None, mask: Tensor
    ) -> tuple[Tensor, _KeysValues]:
        """What each row finds among ``before`` and the rows of ``x``; and these rows' keys and values."""
        queries = _turned(self._split(self.q_proj(x)), turn)
        own = self.keys_values(x, turn)
        keys, values = own
        if before is not None:
            keys, values = torch.cat((before[0], keys), 2), torch.cat((before[1], values), 2)
        group = self.heads // self.kv_heads
        if group > 1:
            keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        # In single precision whatever the products are: its gradients are slow on a CPU otherwise.
        with torch.autocast(x.device.type, enabled=False):
            dtype = torch.promote_types(x.dtype, torch.float32)
            queries, keys, values = (each.to(dtype) for each in (queries, keys, values))
            found = functional.scaled_dot_product_attention(queries, keys, values, mask)
        y: Tensor = self.o_proj(found.transpose(1, 2).flatten(2))
        return y, own

    def keys_values(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> _KeysValues:
        """Of rows ``x``, ``[B, kv heads, rows, head]``."""
        return _turned(self._split(self.k_proj(x)), turn), self._split(self.v_proj(x))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.head)).transpose(1, 2)


class GatedLayer(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class RMSNorm(nn.Module):
    """Rows divided by the root of their mean square, in single precision at least."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            wide = x.to(torch.promote_types(x.dtype, torch.float32))
            return functional.rms_norm(wide, self.weight.shape, self.weight, self.eps)


def _turn(positions: Tensor, config: TokenConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[B, 1, rows, head]`` of the angles at ``positions`` ``[B, rows]``."""
    half = torch.arange(config.head // 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None] * config.rope_theta ** (-2 * half / config.head)
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Halves of each head turned by the angles."""
    one, two = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat((-two, one), dim=-1) * turn[1]
