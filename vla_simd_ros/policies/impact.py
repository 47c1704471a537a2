"""IMPACT: ACT that is told what to do.

A frozen text encoder (T5 or BERT) reads the instruction. Its projected states join the encoder's sequence,
after the cameras; their mean modulates the feature map of each backbone stage (FiLM).
"""

from __future__ import annotations

from vla_simd_ros.checkpoints.checkpoint import DEFAULT_MAX_TOKENS, Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.act import ActNetwork, Film
from vla_simd_ros.policies.act_config import read_act_config
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.text_encoder import read_text_encoder
from vla_simd_ros.policies.blocks.transformer import Sequence


class ImpactPolicy:
    """IMPACT with its text encoder. Raises CheckpointError for what does not fit."""

    solver = None
    action_tokens = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._config = read_act_config(checkpoint, encoder_layers=6, decoder_layers=4, chunk=50)
        self._network = ActNetwork(checkpoint, self._config, lambda stage: f"stages.{stage}")
        self._max_tokens: int = checkpoint.option("tokenizer_max_length", int, DEFAULT_MAX_TOKENS)
        # Checked before anything is made for the longest instruction.
        self._network.weights.shape(
            "text_pos_embed.weight", (self._max_tokens, self._config.transformer.width)
        )
        self._use_film = checkpoint.option("use_film", bool, True)
        self._text_encoder = read_text_encoder(checkpoint, self._max_tokens)
        _check_film_head(checkpoint, self._use_film)

    @property
    def spec(self) -> PolicySpec:
        """Cameras, widths, chunk size and the longest instruction."""
        return self._config.spec("impact", self._max_tokens)

    def check_stored(self) -> None:
        """The text encoder's word embeddings may be used where they are stored."""
        self._text_encoder.check_stored()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``."""
        if tokens is None or not 1 <= tokens <= self._max_tokens:
            raise GraphError(
                f"impact: got an instruction of {tokens} tokens, expected 1 to {self._max_tokens}"
            )
        b = Builder()
        ids = b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        states = self._text_encoder.build(b, ids)
        film = self._film(b, states) if self._use_film else None
        observed = self._network.observe(b, film)
        # Last in the sequence, so that the positions for a short instruction are the first rows of all.
        self._network.act(b, [*observed, self._text(b, states)])
        return b.graph()

    def _text(self, b: Builder, states: Tensor) -> Sequence:
        """The instruction's tokens, and the learned positions of the longest instruction's."""
        width = self._config.transformer.width
        weights = self._network.weights
        with b.block("tokens"):
            weight = weights.constant(b, "text_input_proj.weight", width, self._text_encoder.width)
            bias = weights.constant(b, "text_input_proj.bias", width)
            tokens = b.linear(states, weight, bias, name="text")
            table = weights.constant(b, "text_pos_embed.weight", self._max_tokens, width)
            return Sequence(tokens, table)

    def _film(self, b: Builder, states: Tensor) -> Film:
        """Gamma and beta of each stage; the head puts all gammas before all betas."""
        channels = self._network.backbone.channels
        total = sum(channels)
        weights = self._network.weights
        with b.block("film"):
            mean = b.mean_rows(states, name="mean_state")
            weight = weights.constant(b, "film_head.net.weight", 2 * total, self._text_encoder.width)
            bias = weights.constant(b, "film_head.net.bias", 2 * total)
            coefficients = b.linear(mean, weight, bias, name="coefficients")
            film = []
            start = 0
            for stage, count in enumerate(channels):
                gamma, beta = (
                    b.slice(coefficients, axis=1, start=first, stop=first + count, name=f"{name}.{stage}")
                    for name, first in (("gamma", start), ("beta", total + start))
                )
                film.append((gamma, beta))
                start += count
        return film


def _check_film_head(checkpoint: Checkpoint, use_film: bool) -> None:
    hidden = checkpoint.config.get("film_hidden_dim") or 0
    if use_film and hidden:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: film_hidden_dim is {hidden}, expected 0 "
            "(a FiLM head of one linear layer)"
        )
