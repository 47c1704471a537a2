"""IMPACT that spells its actions: its encoder, and layers that score one action token after the other.

What the encoder gives is the prefix of a small Llama. A token is a bin of one joint in one row of the chunk.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.decoding.cached_model import state_rows
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.action_bins import ActionBins
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.causal_llama import CausalLlama, KeptTokens
from vla_simd_ros.policies.blocks.modules import linear
from vla_simd_ros.policies.impact import ImpactNetwork
from vla_simd_ros.policies.impact_tokens_config import ImpactTokensConfig, read_impact_tokens_config
from vla_simd_ros.policies.weights import Weights

_TOKENS = "model.tokens."


class ImpactTokensPolicy:
    """IMPACT's encoder and its token layers. Raises CheckpointError for what does not fit."""

    solver = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._config = config = read_impact_tokens_config(checkpoint)
        self._network = ImpactNetwork(checkpoint, config.act)
        self._weights = Weights(checkpoint.weights, _TOKENS)
        longest = self._network.max_tokens
        self.spec: PolicySpec = dataclasses.replace(
            config.act.spec("impact_tokens", longest), relative_actions=config.relative
        )
        """Cameras, widths, chunk size and the longest instruction."""
        self.action_tokens: ActionBins = self._bins(config, checkpoint)
        """The bins of every joint."""
        context = self.action_tokens.prefix_rows(longest) + self.action_tokens.count
        self._stack = CausalLlama(config.layer, config.layers, state_rows(context), self._weights)

    def check_stored(self) -> None:
        """The text encoder's word embeddings may be used where they are stored."""
        self._network.check_stored()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``, and passes
        of ``rows`` action tokens."""
        b = Builder()
        observed = self._network.encode(b, self._network.observe_instructed(b, tokens))
        kept = self._stack.begin(b)
        self._read_prefix(b, observed.tokens, kept)
        self._score(b, rows, kept)
        return b.graph()

    def _read_prefix(self, b: Builder, x: Tensor, kept: KeptTokens) -> None:
        rows = x.shape[0]
        with b.block("prefix.0"):
            x = linear(b, x, self._weights, "prefix_proj", self._config.layer.width, name="input")
            places = self._weights.made(("places", rows), lambda: np.arange(rows, dtype=np.int32))
            positions = b.constant(f"places.{rows}", places)
        self._stack.read(b, x, positions, kept, "prefix")

    def _score(self, b: Builder, rows: int, kept: KeptTokens) -> None:
        ids, positions = (
            b.input(name, (rows,), DType.I32, Lifetime.STEP) for name in ("step_ids", "step_positions")
        )
        shape = self.action_tokens.vocabulary, self._config.layer.width
        with b.block("actions.0"):
            x = b.embedding(self._weights.constant(b, "embed_tokens.weight", *shape), ids, name="input")
        x = self._stack.read(b, x, positions, kept, "actions")
        with b.block("head"):
            scores = self._weights.constant(b, "lm_head.weight", *shape)
            b.output("scores", b.linear(self._stack.normed(b, x), scores, name="scores"))

    def _bins(self, config: ImpactTokensConfig, checkpoint: Checkpoint) -> ActionBins:
        joints = config.act.action.channels
        low, high = (self._weights.array(name, (joints,)) for name in ("action_low", "action_high"))
        for joint in range(joints):
            if not -np.inf < low[joint] < high[joint] < np.inf:
                raise CheckpointError(
                    f"{checkpoint.weights.path}: the bins of action {joint} reach from {low[joint]} to "
                    f"{high[joint]} ({_TOKENS}action_low, action_high), expected two finite numbers in order"
                )
        return ActionBins(config.bins, config.act.chunk_size, low, high, self._network.observed_rows())
