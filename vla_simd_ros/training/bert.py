"""The BERT text encoder in PyTorch, with the parameter names of the transformers library."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

_ACTIVATIONS = {"gelu": nn.functional.gelu, "relu": torch.relu, "silu": nn.functional.silu}


@dataclass(frozen=True)
class BertConfig:
    """Sizes of the encoder; the defaults are BERT-base's."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12

    @property
    def d_model(self) -> int:
        """Width of a state, by the name that it has in other encoders."""
        return self.hidden_size


class BertEncoder(nn.Module):
    """Token ids ``[B, n]`` and mask ``[B, n]`` (true for text) to states ``[B, n, hidden_size]``."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = _Embeddings(config)
        layers = [_Layer(config) for _ in range(config.num_hidden_layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x: Tensor = self.embeddings(ids)
        for layer in self.encoder["layer"]:
            x = layer(x, mask[:, None, None, :])
        return x


class _Embeddings(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, config.layer_norm_eps)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.position_embeddings.weight[: ids.shape[1]]
        # All of the text is of the first segment.
        normed: Tensor = self.LayerNorm(
            self.word_embeddings(ids) + places + self.token_type_embeddings.weight[0]
        )
        return normed


class _Layer(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, hidden = config.hidden_size, config.intermediate_size
        self.attention = nn.ModuleDict({"self": _Attention(config), "output": _Output(width, width, config)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, hidden)})
        self.output = _Output(hidden, width, config)
        self.activation = _ACTIVATIONS[config.hidden_act]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        y: Tensor = self.output(self.activation(self.intermediate["dense"](x)), x)
        return y


class _Attention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        scores = (q @ k.transpose(-1, -2)) * (x.shape[-1] // self.heads) ** -0.5
        weights = torch.softmax(scores.masked_fill(~mask, torch.finfo(x.dtype).min), dim=-1)
        y: Tensor = (weights @ v).transpose(1, 2).flatten(2)
        return y


class _Output(nn.Module):
    """Projects back to the width of the sequence, adds what was there, and normalizes."""

    def __init__(self, inputs: int, width: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, config.layer_norm_eps)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.dense(y) + x)
        return normed
