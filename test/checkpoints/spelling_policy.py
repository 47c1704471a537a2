"""A policy that spells its actions in tokens, small enough to be decoded by definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from random_tensors import RandomTensors
from small_act import SMALL
from small_spiece import corpus, train

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.decoding.cached_model import state_rows
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import PolicySpec
from vla_simd_ros.policies.blocks.causal_llama import CausalLlama
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.weights import Weights

ROWS, ACTIONS, STATE, WORDS, LONGEST, VOCABULARY, WIDTH = 3, 2, 2, 400, 32, 11, 24
LAYERS = LlamaConfig(WIDTH, 4, 2, 6, 40, 1e-5)


@dataclass(frozen=True)
class SmallTokens:
    """Token k of the first ``bins`` ones is the action k / 10; the last token is read first."""

    bins: int = VOCABULARY
    stop: frozenset[int] = frozenset()
    vocabulary: int = VOCABULARY
    first: int = VOCABULARY - 1
    count: int = ROWS * ACTIONS

    def prefix_rows(self, tokens: int | None) -> int:
        return 1 + (tokens or 0)

    def actions(self, tokens: Sequence[int]) -> Array:
        for place, token in enumerate(tokens):
            if token >= self.bins and token not in self.stop:
                raise DecodingError(f"token {token} at place {place}: expected one of {self.bins} bins")
        whole = len(tokens) // ACTIONS * ACTIONS
        return np.array(tokens[:whole], np.float32).reshape(-1, ACTIONS) / 10


@dataclass
class SpellingPolicy:
    """The definition: a state and the words of an instruction are the prefix."""

    text: bool = True
    relative: bool = False
    seed: int = 0
    action_tokens: SmallTokens = field(default_factory=SmallTokens)
    solver = None

    def __post_init__(self) -> None:
        self._weights = Weights(RandomTensors(self.seed, 0.4))
        context = 1 + LONGEST + self.action_tokens.count
        self._stack = CausalLlama(LAYERS, 2, state_rows(context), self._weights)

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec(
            "spelling",
            {},
            STATE,
            0,
            ACTIONS,
            ROWS,
            ROWS,
            uses_instruction=self.text,
            max_instruction_tokens=LONGEST if self.text else 0,
            relative_actions=self.relative,
        )

    def check_stored(self) -> None:
        pass

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        b = Builder()
        kept = self._stack.begin(b)
        prefix = [self._linear(b, b.input("state", (1, STATE), DType.F32, Lifetime.QUERY), "state")]
        if self.text:
            ids = b.input("token_ids", (tokens or 0,), DType.I32, Lifetime.EPISODE)
            # A table larger than the layers: words of the file's own tokenizer.
            words = self._weights.constant(b, "words", WORDS, WIDTH)
            prefix.append(b.embedding(words, ids, name="words.rows"))
        read = b.concat(prefix, axis=0, name="prefix")
        places = b.constant("places", np.arange(read.shape[0], dtype=np.int32))
        self._stack.read(b, read, places, kept, "prefix")
        given = b.input("step_ids", (rows,), DType.I32, Lifetime.STEP)
        positions = b.input("step_positions", (rows,), DType.I32, Lifetime.STEP)
        table = self._weights.constant(b, "embed", self.action_tokens.vocabulary, WIDTH)
        x = self._stack.read(b, b.embedding(table, given, name="x"), positions, kept, "tokens")
        head = self._weights.constant(b, "head", self.action_tokens.vocabulary, WIDTH)
        b.output("scores", b.linear(self._stack.normed(b, x), head, name="scores"))
        return b.graph()

    def greedy(self, given: Mapping[str, Array], tokens: int | None = None) -> list[int]:
        """By definition, in float64: the whole chunk anew for every token, with nothing kept. ``given`` are
        the inputs of the episode and the query."""
        spelling, found = self.action_tokens, [self.action_tokens.first]
        start = spelling.prefix_rows(tokens)
        while len(found) <= spelling.count and found[-1] not in spelling.stop:
            graph = self.build(tokens, len(found))
            positions = np.arange(start, start + len(found), dtype=np.int32)
            steps = {"step_ids": np.array(found, np.int32), "step_positions": positions}
            scores = run_graph(graph, {**given, **steps})[graph.outputs["scores"]]
            found.append(int(np.argmax(scores[-1])))
        return found[1:]

    def _linear(self, b: Builder, x: Tensor, name: str) -> Tensor:
        weight = self._weights.constant(b, f"{name}.weight", WIDTH, x.shape[1])
        return b.linear(x, weight, self._weights.constant(b, f"{name}.bias", WIDTH), name=f"{name}.row")


def checkpoint_with_tokenizer(folder: Path) -> Checkpoint:
    """Of any type, with a tokenizer: what is loaded from it is to be the small policy."""
    make_checkpoint("act", folder, Options(cameras=(Camera("front", 32, 32),), sizes=SMALL))
    (folder / "spiece.model").write_bytes(train(corpus(), 200))
    return load_checkpoint(folder)
