"""A stack of Llama layers that reads tokens one part after the other and keeps their keys and values in
states.

What a graph reads first (the prefix, of a longer lifetime) and what comes after it (tokens that are decoded)
go through the same layers; each part sees all that was kept before it.
"""

from __future__ import annotations

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import KeyValueState, Tensor
from vla_simd_ros.policies.blocks.llama import (
    KeysValues,
    LlamaConfig,
    LlamaLayer,
    Rotary,
    llama_norm,
    rotary_tables,
)
from vla_simd_ros.policies.weights import Weights


class CausalLlama:
    """``layers`` layers over states of ``rows`` tokens, the same states in every graph. ``weights`` are named
    as in the transformers library: "layers.0.self_attn.q_proj.weight", "norm.weight"."""

    def __init__(self, config: LlamaConfig, layers: int, rows: int, weights: Weights) -> None:
        self._config = config
        self._rows = rows
        self._weights = weights
        self._states = [KeyValueState(rows, config.kv_heads, config.head) for _ in range(layers)]

    def begin(self, b: Builder) -> KeptTokens:
        """The states in a graph, before anything is read in it."""
        return KeptTokens([b.state(f"kept.{i}", state) for i, state in enumerate(self._states)])

    def read(self, b: Builder, x: Tensor, positions: Tensor, kept: KeptTokens, part: str) -> Tensor:
        """Rows ``x`` at ``positions``, int32 [rows], after all layers, whose blocks are named ``part``.0 and
        so on; each sees what is kept up to itself, and is kept."""
        turn = self._rotary(b, positions, part)
        for index, before in enumerate(kept.states):
            layer = LlamaLayer(self._config, self._weights, f"layers.{index}")
            with b.block(f"{part}.{index}"):
                queries, _, state = _keep(b, layer, x, turn, before, positions)
                x = layer.attend_cached(b, x, queries, state, positions)
            kept.states[index] = state
        return x

    def read_at_once(
        self, b: Builder, x: Tensor, positions: Tensor, kept: KeptTokens, part: str, bias: Tensor
    ) -> None:
        """Keep rows ``x`` at ``positions``, the first ones, each of which sees all of them but where ``bias``
        [1, rows, rows] hides some. Blocks are named as by :meth:`read`."""
        turn = self._rotary(b, positions, part)
        for index, before in enumerate(kept.states):
            layer = LlamaLayer(self._config, self._weights, f"layers.{index}")
            with b.block(f"{part}.{index}"):
                queries, own, kept.states[index] = _keep(b, layer, x, turn, before, positions)
                x = layer.attend(b, x, queries, own, bias, "self_attn")

    def normed(self, b: Builder, x: Tensor) -> Tensor:
        """What scores are computed from: ``x`` after all layers, normalized."""
        return llama_norm(b, x, self._weights, "norm", self._config, name="norm")

    def _rotary(self, b: Builder, positions: Tensor, part: str) -> Rotary:
        config = self._config
        tables = rotary_tables(0, self._rows, config.head, config.base, config.stretch)
        with b.block(f"{part}.positions"):
            cos, sin = (
                b.embedding(b.constant(f"rotary.{name}", table), positions, name=name)
                for name, table in zip(("cos", "sin"), tables, strict=True)
            )
        return Rotary(cos, sin)


def _keep(
    b: Builder, layer: LlamaLayer, x: Tensor, turn: Rotary, before: Tensor, positions: Tensor
) -> tuple[Tensor, KeysValues, Tensor]:
    """The queries of rows ``x``, their own keys and values, and the state ``before`` with these."""
    y = layer.input_norm(b, x)
    own = layer.keys_values(b, y, turn)
    queries = layer.queries(b, y, turn)
    return queries, own, b.append(before, own.keys, own.values, positions, name="kept")


class KeptTokens:
    """The states of a graph as they are behind what was read in it so far."""

    def __init__(self, states: list[Tensor]) -> None:
        self.states = states
