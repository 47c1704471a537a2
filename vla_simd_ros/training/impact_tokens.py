"""IMPACT that spells its actions in tokens, in PyTorch: its encoder, and layers that score the next token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vla_simd_ros.training.impact import ImpactConfig, ImpactEncoder, ImpactInputs
from vla_simd_ros.training.token_layers import TokenConfig, TokenLayers

TYPE = "impact_tokens"


@dataclass(frozen=True)
class ImpactTokensConfig(ImpactConfig, TokenConfig):
    """Fields of config.json that shape the network. Bins are of actions relative to the observed state, or of
    actions as they are."""

    use_vae: bool = False
    relative_actions: bool = True

    @property
    def token_count(self) -> int:
        """Tokens of a chunk."""
        return self.chunk_size * self.action_dim


@dataclass(frozen=True)
class Prefix:
    """What an action-token policy reads before the first token: rows ``[B, n, dim_model]``, and which of them
    there are ``[B, n]``."""

    rows: Tensor
    there: Tensor


class ImpactTokensPolicy(nn.Module):
    """The network under the name that checkpoints give it. All of it but the token layers is frozen."""

    def __init__(self, config: ImpactTokensConfig) -> None:
        super().__init__()
        self.config = config
        self.model = ImpactTokens(config)
        self.model.requires_grad_(False)
        self.model.tokens.requires_grad_(True)

    @torch.no_grad()
    def prefix(self, inputs: ImpactInputs) -> Prefix:
        """Encode normalized observations."""
        latent = inputs.images[0].new_zeros(len(inputs.images[0]), self.config.latent_dim)
        memory = self.model.encode(inputs, self.model.encode_text(inputs), latent)
        rows = memory.rows
        there = rows.new_ones(rows.shape[:2], dtype=torch.bool) if memory.padding is None else ~memory.padding
        return Prefix(rows, there)


class ImpactTokens(ImpactEncoder):
    """IMPACT's encoder, and the token layers behind it."""

    def __init__(self, config: ImpactTokensConfig) -> None:
        super().__init__(config)
        self.tokens = TokenLayers(config, config.dim_model, config.action_dim)
