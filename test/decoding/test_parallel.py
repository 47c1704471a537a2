from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_model import ToyModel

from vla_simd_ros.decoding.base import Decoded, DecodingError, Exit, Request
from vla_simd_ros.decoding.parallel import INITIALIZATIONS, ParallelDecoder
from vla_simd_ros.graph.ir import Array

PREFIX, LAST = [3, 1, 4], 1


def decode(
    decoder: ParallelDecoder, model: ToyModel, request: Request, prefix: Sequence[int] = PREFIX
) -> Decoded:
    model.kept = list(prefix)
    return decoder.decode(model, request)


models = st.builds(
    ToyModel, st.integers(0, 10**6), st.integers(2, 9), st.integers(1, 4), st.sampled_from([0, 2, 3])
)
decoders = st.builds(
    ParallelDecoder,
    block=st.integers(1, 12),
    initialization=st.sampled_from(INITIALIZATIONS),
    seed=st.integers(0, 1000),
)


@settings(deadline=None, max_examples=200)
@given(models, decoders, st.integers(1, 30), st.sets(st.integers(0, 8), max_size=2))
def test_the_fixed_point_is_what_one_after_the_other_gives(
    model: ToyModel, decoder: ParallelDecoder, count: int, stop: set[int]
) -> None:
    decoded = decode(decoder, model, Request(LAST, count, frozenset(stop)))
    assert list(decoded.tokens) == model.greedy([*PREFIX, LAST], count, frozenset(stop))
    assert decoded.exact and decoded.converged
    assert sum(one.fixed for one in decoded.passes) == len(decoded.tokens)
    assert len(decoded.passes) <= len(decoded.tokens)
    ended = decoded.tokens[-1] in stop
    assert (decoded.exit is Exit.STOP_TOKEN) == ended
    if not ended:
        assert decoded.exit is (Exit.COMPLETE if decoder.block == 1 else Exit.FIXED_POINT)


@settings(deadline=None, max_examples=50)
@given(models, decoders, st.integers(1, 20), st.floats(0.05, 0.95))
def test_a_confident_exit_is_one(model: ToyModel, decoder: ParallelDecoder, count: int, sigma: float) -> None:
    early = ParallelDecoder("early_exit", decoder.block, sigma, 0, decoder.initialization, decoder.seed)
    decoded = decode(early, model, Request(LAST, count))
    assert len(decoded.tokens) == count
    exact = model.greedy([*PREFIX, LAST], count)
    if decoded.exact:
        assert list(decoded.tokens) == exact
    if decoded.exit is Exit.CONFIDENT:
        assert decoded.passes[-1].confidence >= sigma
    # What was taken without being certain is computed before what follows it: only the last token is not
    # kept.
    assert model.kept == [*PREFIX, LAST, *decoded.tokens[:-1]] or not decoded.exact


@settings(deadline=None, max_examples=30)
@given(models, st.integers(2, 10), st.integers(0, 99))
def test_states_are_jacobi_iterations(model: ToyModel, block: int, seed: int) -> None:
    """Every state follows from the one before by the definition, all tokens at once."""
    decoded = decode(ParallelDecoder(block=block, seed=seed), model, Request(LAST, block))
    for before, after in itertools.pairwise(one.state for one in decoded.passes):
        text = [*PREFIX, LAST, *before]
        expected = [int(np.argmax(model.scores_after(text[: 4 + i]))) for i in range(block)]
        assert list(after) == expected
    final = decoded.passes[-1].state
    text = [*PREFIX, LAST, *final]
    assert [int(np.argmax(model.scores_after(text[: 4 + i]))) for i in range(block)] == list(final)


def test_what_is_certain_is_not_computed_again() -> None:
    model = ToyModel(seed=5)
    decoded = decode(ParallelDecoder(block=10), model, Request(LAST, 10))
    rows = [one.rows for one in decoded.passes]
    assert rows == model.calls and rows[0] == 10
    assert all(later < earlier for earlier, later in itertools.pairwise(rows))
    assert model.kept == [*PREFIX, LAST, *decoded.tokens[:-1]]


def test_one_after_the_other_is_a_block_of_one() -> None:
    model = ToyModel(seed=2)
    decoded = decode(ParallelDecoder("autoregressive", block=1), model, Request(LAST, 6))
    assert model.calls == [1] * 6 and [one.fixed for one in decoded.passes] == [1] * 6
    assert decoded.exit is Exit.COMPLETE


def test_passes_can_be_limited() -> None:
    model = ToyModel(seed=5)
    exact = model.greedy([*PREFIX, LAST], 8)
    decoded = decode(ParallelDecoder(block=8, max_passes=2), model, Request(LAST, 8))
    assert (decoded.exit, len(decoded.passes), decoded.converged) == (Exit.MAX_PASSES, 2, False)
    assert len(decoded.tokens) == 8 and list(decoded.tokens[:2]) == exact[:2] and not decoded.exact


def test_no_guess_of_a_block_that_had_no_pass_is_taken() -> None:
    model = ToyModel(seed=5)
    decoded = decode(ParallelDecoder("autoregressive", block=1, max_passes=3), model, Request(LAST, 8))
    assert list(decoded.tokens) == model.greedy([*PREFIX, LAST], 3)
    assert decoded.exit is Exit.MAX_PASSES and decoded.exact


class Clock:
    """Shows the next of some times whenever it is asked, then the last one."""

    def __init__(self, *times: float) -> None:
        self._times = list(times)

    def __call__(self) -> float:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]


def test_times_and_rates() -> None:
    # Two passes, begun and ended at these times; between them the clock is asked whether the second may
    # begin.
    clock = Clock(10.0, 12.0, 12.5, 13.0, 14.0)
    decoded = decode(ParallelDecoder(block=8, max_passes=2, clock=clock), ToyModel(seed=5), Request(LAST, 8))
    assert [one.seconds for one in decoded.passes] == [2.0, 1.0]
    first, second = (one.fixed for one in decoded.passes)
    assert first + second == 8
    assert decoded.mean_tokens_per_second == pytest.approx(8 / 3)
    assert decoded.min_tokens_per_second == min(first / 2.0, second / 1.0)
    assert decoded.fixed_per_pass == 4.0


def test_no_pass_begins_after_the_deadline_but_the_first() -> None:
    late = Clock(100.0)
    decoded = decode(ParallelDecoder(block=8, clock=late), ToyModel(seed=5), Request(LAST, 8, deadline=50.0))
    assert (decoded.exit, len(decoded.passes), decoded.converged) == (Exit.DEADLINE, 1, False)
    assert decoded.mean_tokens_per_second == math.inf  # no time passed on this clock


class Broken(ToyModel):
    """Scores of which one is not a number, in the row after ``sound`` tokens."""

    def __init__(self, sound: int, value: float) -> None:
        super().__init__(seed=1)
        self._sound, self._value = sound, value

    def scores_after(self, text: Sequence[int]) -> Array:
        scores = super().scores_after(text)
        if len(text) > len(PREFIX) + self._sound:
            scores[2] = self._value
        return scores


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("block", "sound"), [(1, 2), (4, 2), (1, 0)])
def test_scores_that_are_no_numbers_are_refused(value: float, block: int, sound: int) -> None:
    with pytest.raises(DecodingError, match=f"the scores of token {sound} are not finite"):
        decode(ParallelDecoder(block=block), Broken(sound, value), Request(LAST, 4))


def test_minus_infinity_rules_a_token_out() -> None:
    decoded = decode(ParallelDecoder(block=1), Broken(0, -math.inf), Request(LAST, 20))
    assert 2 not in decoded.tokens


@pytest.mark.parametrize(
    ("count", "message"),
    [(0, "0 tokens to decode, expected 1 or more"), (198, "expected no more than the 197 there is room for")],
)
def test_requests_must_fit(count: int, message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        decode(ParallelDecoder(), ToyModel(), Request(LAST, count))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"block": 0}, "block is 0, expected 1 or more"),
        ({"sigma": 1.5}, "sigma is 1.5, expected a probability"),
        ({"sigma": -0.1}, "sigma is -0.1"),
        ({"max_passes": -1}, "max_passes is -1, expected 1 or more"),
        ({"initialization": "zeros"}, "'zeros' is unknown, expected one of random, repeat"),
    ],
)
def test_settings_that_do_not_exist(values: dict[str, object], message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        ParallelDecoder(**values)  # type: ignore[arg-type]
