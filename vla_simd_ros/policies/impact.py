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
from vla_simd_ros.policies.act_config import ActConfig, read_act_config
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.text_encoder import read_text_encoder
from vla_simd_ros.policies.blocks.transformer import Sequence


class ImpactPolicy:
    """IMPACT with its text encoder. Raises CheckpointError for what does not fit."""

    solver = None
    action_tokens = None

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = read_act_config(checkpoint, encoder_layers=6, decoder_layers=4, chunk=50)
        self._network = ImpactNetwork(checkpoint, config)
        self.spec: PolicySpec = config.spec("impact", self._network.max_tokens)
        """Cameras, widths, chunk size and the longest instruction."""

    def check_stored(self) -> None:
        """The text encoder's word embeddings may be used where they are stored."""
        self._network.check_stored()

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        """The graph for an instruction of ``tokens`` tokens, 1 to ``spec.max_instruction_tokens``."""
        b = Builder()
        self._network.act(b, self._network.observe_instructed(b, tokens))
        return b.graph()


class ImpactNetwork(ActNetwork):
    """ACT's network, and the text encoder in front of it."""

    def __init__(self, checkpoint: Checkpoint, config: ActConfig) -> None:
        super().__init__(checkpoint, config, lambda stage: f"stages.{stage}")
        self.max_tokens: int = checkpoint.option("tokenizer_max_length", int, DEFAULT_MAX_TOKENS)
        """The longest instruction."""
        self._type = checkpoint.type
        self._width = config.transformer.width
        # Checked before anything is made for the longest instruction.
        self.weights.shape("text_pos_embed.weight", (self.max_tokens, self._width))
        self._use_film = checkpoint.option("use_film", bool, True)
        self._text_encoder = read_text_encoder(checkpoint, self.max_tokens)
        _check_film_head(checkpoint, self._use_film)

    def check_stored(self) -> None:
        """The text encoder's word embeddings may be used where they are stored."""
        self._text_encoder.check_stored()

    def observe_instructed(self, b: Builder, tokens: int | None) -> list[Sequence]:
        """What :meth:`observe` gives for an instruction of ``tokens`` tokens, and these tokens."""
        if tokens is None or not 1 <= tokens <= self.max_tokens:
            raise GraphError(
                f"{self._type}: got an instruction of {tokens} tokens, expected 1 to {self.max_tokens}"
            )
        ids = b.input("token_ids", (tokens,), DType.I32, Lifetime.EPISODE)
        states = self._text_encoder.build(b, ids)
        film = self._film(b, states) if self._use_film else None
        # Text last, so that the positions for a short instruction are the first rows of all.
        return [*self.observe(b, film), self._text(b, states)]

    def _text(self, b: Builder, states: Tensor) -> Sequence:
        """The instruction's tokens, and the learned positions of the longest instruction's."""
        width, weights = self._width, self.weights
        with b.block("tokens"):
            weight = weights.constant(b, "text_input_proj.weight", width, self._text_encoder.width)
            bias = weights.constant(b, "text_input_proj.bias", width)
            tokens = b.linear(states, weight, bias, name="text")
            table = weights.constant(b, "text_pos_embed.weight", self.max_tokens, width)
            return Sequence(tokens, table)

    def _film(self, b: Builder, states: Tensor) -> Film:
        """Gamma and beta of each stage; the head puts all gammas before all betas."""
        channels = self.backbone.channels
        total = sum(channels)
        weights = self.weights
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
