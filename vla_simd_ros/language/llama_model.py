"""A language model of Llama layers as a graph: tokens in, scores of the tokens that follow out."""

from __future__ import annotations

from dataclasses import dataclass

from vla_simd_ros.decoding.cached_model import state_rows
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.blocks.causal_llama import CausalLlama
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.weights import Weights


@dataclass(frozen=True)
class LlamaModelConfig:
    """Sizes of a model. ``context`` tokens are kept at most. ``tied``: the table of embeddings is the weight
    of the output layer too."""

    layer: LlamaConfig
    layers: int
    vocabulary: int
    context: int
    tied: bool


class LlamaModel:
    """The graphs of a model, which share weights and states."""

    def __init__(self, config: LlamaModelConfig, weights: Weights) -> None:
        self.config = config
        self._weights = weights
        self._stack = CausalLlama(config.layer, config.layers, state_rows(config.context), weights)

    def build(self, rows: int) -> Graph:
        """The graph of passes of ``rows`` tokens.

        QUERY inputs ``prefix_ids`` and ``prefix_positions``, int32 [rows]: the query program reads a part of
        the prompt and keeps it. STEP inputs ``step_ids`` and ``step_positions``: the step program reads what
        comes after it, and gives ``scores`` float32 [rows, vocabulary].
        """
        b = Builder()
        kept = self._stack.begin(b)
        ids, positions = _tokens(b, "prefix_ids", "prefix_positions", rows, Lifetime.QUERY)
        self._stack.read(b, self._embedded(b, ids, "prefix"), positions, kept, "prefix")
        ids, positions = _tokens(b, "step_ids", "step_positions", rows, Lifetime.STEP)
        x = self._stack.read(b, self._embedded(b, ids, "tokens"), positions, kept, "layers")
        with b.block("head"):
            b.output("scores", b.linear(self._stack.normed(b, x), self._output_weight(b), name="scores"))
        return b.graph()

    def _embedded(self, b: Builder, ids: Tensor, part: str) -> Tensor:
        with b.block("embed"):
            return b.embedding(self._table(b, "embed_tokens.weight"), ids, name=part)

    def _output_weight(self, b: Builder) -> Tensor:
        return self._table(b, "embed_tokens.weight" if self.config.tied else "lm_head.weight")

    def _table(self, b: Builder, name: str) -> Tensor:
        return self._weights.constant(b, name, self.config.vocabulary, self.config.layer.width)


def _tokens(b: Builder, ids: str, positions: str, rows: int, lifetime: Lifetime) -> tuple[Tensor, Tensor]:
    return b.input(ids, (rows,), DType.I32, lifetime), b.input(positions, (rows,), DType.I32, lifetime)
