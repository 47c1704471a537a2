"""Decoding on compiled programs: the engine's tokens, the float64 ones, and how often what is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_model import random_llama

from vla_simd_ros.decoding.base import Decoder, DecodingError, Exit, Request
from vla_simd_ros.decoding.cached_model import SIZES, CachedModel
from vla_simd_ros.decoding.decoders import DECODERS, make_decoder
from vla_simd_ros.executors.base import Executable, Executor
from vla_simd_ros.executors.reference_executor import ReferenceExecutor, run_graph
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, Lifetime, Tensor
from vla_simd_ros.language.llama_model import LlamaModel

PROMPT = [5, 17, 2, 2, 28, 0, 11, 9, 23]


class Counted:
    """An executable, and how often each of its programs ran with how many rows."""

    def __init__(self, inner: Executable, runs: list[tuple[Lifetime, int]], rows: int) -> None:
        self._inner, self._runs, self._rows = inner, runs, rows

    def run(self, lifetime: Lifetime, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._runs.append((lifetime, self._rows))
        return self._inner.run(lifetime, inputs)

    def tensor(self, tensor: Tensor) -> Array:
        return self._inner.tensor(tensor)


class Loaded:
    """A model on an executor, whose runs are counted."""

    def __init__(self, model: LlamaModel, executor: Executor) -> None:
        self._model, self._executor, self._cache = model, executor, FoldCache()
        self._made: dict[int, Counted] = {}
        self.runs: list[tuple[Lifetime, int]] = []
        self.model = CachedModel(self._executable, model.config.context, model.config.vocabulary)

    def _executable(self, rows: int) -> Counted:
        if rows not in self._made:
            compiled = compile_graph(self._model.build(rows), self._cache)
            beside = next(iter(self._made.values()), None)
            inner = self._executor.load(compiled, None if beside is None else beside._inner)
            self._made[rows] = Counted(inner, self.runs, rows)
        return self._made[rows]

    def decode(self, decoder: Decoder, count: int, prompt: list[int] = PROMPT) -> tuple[int, ...]:
        self.model.begin(prompt[:-1])
        return decoder.decode(self.model, Request(prompt[-1], count)).tokens


def greedy(model: LlamaModel, prompt: list[int], count: int) -> list[int]:
    """By definition, in float64: the whole text anew for every token, with nothing kept."""
    text = list(prompt)
    for _ in range(count):
        graph = model.build(len(text))
        positions = np.arange(len(text), dtype=np.int32)
        before = {"prefix_ids": np.array(text, np.int32), "prefix_positions": positions}
        values = run_graph(
            graph, {**before, "step_ids": np.array(text, np.int32), "step_positions": positions}
        )
        text.append(int(np.argmax(values[graph.outputs["scores"]][-1])))
    return text[len(prompt) :]


EXECUTORS: dict[str, Callable[[], Executor]] = {
    "reference": ReferenceExecutor,
    "simd": lambda: SimdExecutor(threads=2),
}


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize(("tied", "interleaved"), [(True, False), (False, True)])
def test_every_decoder_gives_the_greedy_tokens(name: str, tied: bool, interleaved: bool) -> None:
    model = random_llama(3, tied=tied, interleaved=interleaved)
    loaded = Loaded(model, EXECUTORS[name]())
    expected = greedy(model, PROMPT, 12)
    for decoder in DECODERS:
        assert list(loaded.decode(make_decoder(decoder, block=5, sigma=1.0), 12)) == expected


@settings(deadline=None, max_examples=6)
@given(
    seed=st.integers(0, 10**6),
    block=st.integers(2, 20),
    count=st.integers(1, 30),
    initialization=st.sampled_from(["random", "repeat"]),
)
def test_no_bit_depends_on_the_decoder(seed: int, block: int, count: int, initialization: str) -> None:
    """Scores of the engine, token by token: the same bits however many were scored at once."""
    loaded = Loaded(random_llama(seed), SimdExecutor(threads=1))
    tokens = loaded.decode(make_decoder("autoregressive"), count)
    assert loaded.decode(make_decoder("jacobi", block=block, initialization=initialization), count) == tokens
    loaded.model.begin(PROMPT[:-1])
    together = loaded.model.scores([PROMPT[-1], *tokens[:-1]])
    for row, token in enumerate([PROMPT[-1], *tokens[:-1]]):
        alone = loaded.model.scores([token])
        np.testing.assert_array_equal(alone[0], together[row])
        loaded.model.keep(1)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_prefix_is_computed_once_per_query(decoder: str) -> None:
    loaded = Loaded(random_llama(4), ReferenceExecutor())
    for _ in range(2):
        loaded.runs.clear()
        loaded.decode(make_decoder(decoder, block=4, sigma=0.3), 10, 4 * PROMPT)
        assert loaded.runs[0] == (Lifetime.QUERY, 48)
        assert {lifetime for lifetime, _ in loaded.runs[1:]} == {Lifetime.STEP}
        # No step has rows for the prefix: only for a block, and for those of the last that are not certain.
        assert all(rows <= 8 for _, rows in loaded.runs[1:])


def test_the_last_layer_of_a_prefix_only_leaves_keys_and_values() -> None:
    compiled = compile_graph(random_llama(0).build(8), FoldCache())
    ops = compiled.programs[Lifetime.QUERY].ops
    assert [op.kind for op in ops].count("append") == 2
    assert [op.kind for op in ops].count("cached_attention") == 1
    assert ops[-1].kind == "append" and not compiled.programs[Lifetime.QUERY].provides


def test_a_rejected_guess_leaves_no_trace() -> None:
    loaded = Loaded(random_llama(5), SimdExecutor(threads=1))
    loaded.model.begin(PROMPT)
    expected = loaded.model.scores([7, 8, 9])
    loaded.model.begin(PROMPT)
    loaded.model.scores([1, 1, 1, 1, 1, 1, 1])
    loaded.model.scores([7, 20, 21])
    loaded.model.keep(1)
    np.testing.assert_array_equal(loaded.model.scores([8, 9]), expected[1:])
    loaded.model.go_on(len(PROMPT))
    np.testing.assert_array_equal(loaded.model.scores([7, 8, 9]), expected)


def test_long_prompts_are_read_in_parts() -> None:
    loaded = Loaded(random_llama(6), SimdExecutor(threads=1))
    rng = np.random.default_rng(0)
    prompt = [int(token) for token in rng.integers(0, 29, 75)]
    loaded.model.begin(prompt)
    assert loaded.runs == [(Lifetime.QUERY, 64), (Lifetime.QUERY, 16)]
    scores = loaded.model.scores([3])
    loaded.model.begin(prompt[:9])
    whole = loaded.model.scores([*prompt[9:], 3])
    assert whole.shape == (67, 29) and loaded.runs[-2:] == [(Lifetime.STEP, 64), (Lifetime.STEP, 4)]
    np.testing.assert_array_equal(whole[-1:], scores)


def test_the_context_can_be_filled_to_its_end() -> None:
    context = SIZES[-1] + 3
    loaded = Loaded(random_llama(7, context=context), SimdExecutor(threads=1))
    loaded.model.begin([1] * (context - 5))
    decoded = make_decoder("jacobi", block=5).decode(loaded.model, Request(2, 5))
    assert decoded.exit is Exit.FIXED_POINT and loaded.model.room == 0
    with pytest.raises(
        DecodingError, match=f"1 tokens after {context}, expected no more than the context of"
    ):
        loaded.model.scores([1])
    with pytest.raises(
        DecodingError, match="5 tokens to decode, expected no more than the 0 there is room for"
    ):
        make_decoder("autoregressive").decode(loaded.model, Request(2, 5))
    with pytest.raises(DecodingError, match=f"{context + 1} tokens after 0, expected"):
        loaded.model.begin([1] * (context + 1))


def test_tokens_must_be_in_the_vocabulary() -> None:
    loaded = Loaded(random_llama(8), ReferenceExecutor())
    with pytest.raises(DecodingError, match="token 29 at place 1 is not in the vocabulary of 29"):
        loaded.model.begin([3, 29])
    with pytest.raises(DecodingError, match="token -1 at place 0"):
        loaded.model.scores([-1])


def test_only_what_was_scored_can_be_kept() -> None:
    loaded = Loaded(random_llama(9), ReferenceExecutor())
    loaded.model.begin(PROMPT)
    loaded.model.scores([1, 2])
    with pytest.raises(ValueError, match="3 tokens to keep, expected no more than the 2 scored last"):
        loaded.model.keep(3)
    loaded.model.keep(2)
    with pytest.raises(ValueError, match="1 tokens to keep, expected no more than the 0"):
        loaded.model.keep(1)
