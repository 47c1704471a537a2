"""Models small enough to be asked everything: scores that are looked up, and a Llama of random weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from random_tensors import RandomTensors

from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.language.llama_model import LlamaModel, LlamaModelConfig
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.weights import Weights


class ToyModel:
    """Scores drawn anew for every text, as far as its last ``memory`` tokens differ. With ``levels`` above 0
    they take so few values that most texts have ties."""

    def __init__(
        self, seed: int = 0, vocabulary: int = 7, memory: int = 3, levels: int = 0, context: int = 200
    ) -> None:
        self.vocabulary = vocabulary
        self.kept: list[int] = []
        self.calls: list[int] = []
        self._seed, self._memory, self._levels, self._context = seed, memory, levels, context
        self._last: list[int] = []

    @property
    def room(self) -> int:
        return self._context - len(self.kept)

    def scores_after(self, text: Sequence[int]) -> Array:
        key = hashlib.sha256(str((self._seed, list(text[-self._memory :]))).encode()).digest()
        rng = np.random.default_rng(int.from_bytes(key[:8], "little"))
        if self._levels:
            return rng.integers(0, self._levels, self.vocabulary).astype(np.float32)
        return 2 * rng.normal(size=self.vocabulary).astype(np.float32)

    def scores(self, tokens: Sequence[int]) -> Array:
        if len(tokens) > self.room:
            raise DecodingError("no room")
        self.calls.append(len(tokens))
        self._last = list(tokens)
        return np.stack([self.scores_after([*self.kept, *tokens[: row + 1]]) for row in range(len(tokens))])

    def keep(self, count: int) -> None:
        self.kept += self._last[:count]

    def greedy(self, text: Sequence[int], count: int, stop: frozenset[int] = frozenset()) -> list[int]:
        """One token after the other, by definition."""
        found: list[int] = []
        while len(found) < count and not (found and found[-1] in stop):
            found.append(int(np.argmax(self.scores_after([*text, *found]))))
        return found


def random_llama(seed: int, *, tied: bool = True, interleaved: bool = False, context: int = 90) -> LlamaModel:
    """Two layers, grouped heads, scores far enough apart to be decided by more than rounding."""
    layer = LlamaConfig(24, 4, 2, 6, 40, 1e-5, base=500.0, interleaved=interleaved)
    config = LlamaModelConfig(layer, layers=2, vocabulary=29, context=context, tied=tied)
    return LlamaModel(config, Weights(RandomTensors(seed, 0.4)))
