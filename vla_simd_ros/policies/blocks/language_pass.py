"""One causal pass of a language model over an instruction and what is observed after it.

The instruction comes first and sees nothing of what follows, so its rows, and their keys and values in every
layer, are computed once for all observations.
"""

from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.llama import KeysValues, LlamaConfig, LlamaLayer
from vla_simd_ros.policies.weights import Weights


class LanguagePass:
    """The layers of a model, named ``layers.<index>`` among ``weights``; ``name`` is what their blocks are
    called."""

    def __init__(self, config: LlamaConfig, layers: int, weights: Weights, name: str) -> None:
        self._config = config
        self._layers = layers
        self._weights = weights
        self._name = name

    def read(self, b: Builder, instruction: Tensor, observed: Tensor, wanted: int) -> Tensor:
        """The last ``wanted`` rows [wanted, width] after all layers and the final norm."""
        start, rows = instruction.shape[0], observed.shape[0]
        for index in range(self._layers):
            layer = LlamaLayer(self._config, self._weights, f"layers.{index}")
            last = index == self._layers - 1
            before, instruction = self._instruction(b, layer, instruction, index)
            with b.block(f"{self._name}.{index}"):
                normed = layer.input_norm(b, observed)
                seen = _joined(b, before, layer.keys_values(b, normed, start))
                kept = wanted if last else rows
                observed, normed = (
                    _last_rows(b, x, kept, n) for x, n in ((observed, "kept"), (normed, "asking"))
                )
                queries = layer.queries(b, normed, start + rows - kept)
                bias = self._mask(b, start, rows, kept)
                observed = layer.attend(b, observed, queries, seen, bias, "self_attn")
        with b.block(f"{self._name}.{self._layers - 1}"):
            weight = self._weights.constant(b, "norm.weight", self._config.width)
            return b.rms_norm(observed, weight, eps=self._config.eps, name="final_norm")

    def _instruction(self, b: Builder, layer: LlamaLayer, x: Tensor, index: int) -> tuple[KeysValues, Tensor]:
        """What the instruction leaves for later rows in a layer, and its rows after it."""
        rows = x.shape[0]
        with b.block(f"instruction.{self._name}.{index}"):
            normed = layer.input_norm(b, x)
            left = layer.keys_values(b, normed, 0)
            bias = self._mask(b, 0, rows, rows)
            return left, layer.attend(b, x, layer.queries(b, normed, 0), left, bias, "self_attn")

    def _mask(self, b: Builder, before: int, rows: int, kept: int) -> Tensor:
        """That of the last ``kept`` of ``rows``."""
        key = ("mask", before, rows, kept)
        mask = self._weights.made(key, lambda: causal_mask(before, rows)[:, -kept:])
        return b.constant(f"{self._name}.mask.{before}+{rows}.{kept}", mask)


def causal_mask(before: int, rows: int) -> Array:
    """float32 [1, rows, before + rows]: each row sees the ``before`` ones, itself and those between."""
    hidden = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
    return np.concatenate((np.zeros((rows, before), np.float32), hidden), axis=1)[None]


def _joined(b: Builder, first: KeysValues, second: KeysValues) -> KeysValues:
    keys = b.concat([first.keys, second.keys], axis=0, name="self_attn.keys")
    return KeysValues(keys, b.concat([first.values, second.values], axis=0, name="self_attn.values"))


def _last_rows(b: Builder, x: Tensor, count: int, name: str) -> Tensor:
    return b.slice(x, axis=0, start=x.shape[0] - count, stop=x.shape[0], name=name)
