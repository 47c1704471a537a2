from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_model import ToyModel

from vla_simd_ros.decoding.auto import AutoDecoder
from vla_simd_ros.decoding.base import Decoded, DecodingError, Exit, Pass, Request
from vla_simd_ros.decoding.decoders import make_decoder
from vla_simd_ros.tuning.pass_costs import PassCosts

COSTS = PassCosts({1: 4.0, 2: 4.4, 4: 6.0, 8: 10.0, 16: 20.0})


class Scripted:
    """A decoder of one block that fixes ``fixed`` tokens in every pass; ``asked`` notes its queries."""

    def __init__(self, block: int, fixed: dict[int, int], asked: list[int]) -> None:
        self.name = "scripted"
        self._block, self._fixed, self._asked = block, fixed, asked

    def decode(self, model: object, request: Request) -> Decoded:
        self._asked.append(self._block)
        passes = tuple(Pass(self._block, 0, (0,), self._fixed[self._block], 1.0, 0.1) for _ in range(3))
        return Decoded((0,), passes, Exit.COMPLETE, True)


def scripted(fixed: dict[int, int], costs: PassCosts | None = COSTS) -> tuple[AutoDecoder, list[int]]:
    asked: list[int] = []
    return AutoDecoder(16, lambda block: Scripted(block, fixed, asked), costs), asked


def test_every_block_is_tried_and_then_the_fastest_is_kept() -> None:
    fixed = {1: 1, 2: 1, 4: 2, 8: 3, 16: 4}
    decoder, asked = scripted(fixed)
    for _ in range(12):
        decoder.decode(ToyModel(), Request(0, 3))
    assert asked == [2, 4, 8, 16] + [4] * 8


def test_it_goes_back_to_one_token_after_the_other_and_looks_again() -> None:
    fixed = {1: 1, 2: 1, 4: 1, 8: 1, 16: 1}
    decoder, asked = scripted(fixed)
    for _ in range(31):
        decoder.decode(ToyModel(), Request(0, 3))
    assert asked == [2, 4, 8, 16] + [1] * 27
    fixed[2] = 2
    for _ in range(4 * 32):
        decoder.decode(ToyModel(), Request(0, 3))
    assert asked[31] == 2 and {4, 8, 16} <= set(asked[32:])


def test_blocks_that_cannot_pay_are_never_tried() -> None:
    decoder, asked = scripted({1: 1, 2: 2}, PassCosts({1: 1.0, 2: 1.5, 4: 4.0, 8: 8.5, 16: 17.0}))
    for _ in range(40):
        decoder.decode(ToyModel(), Request(0, 3))
    assert set(asked) == {2}


def test_costs_are_measured_by_the_first_query_that_has_time() -> None:
    now = [0.0]

    class Slow(ToyModel):
        def scores(self, tokens: list[int]):  # type: ignore[no-untyped-def, override]
            now[0] += 0.004 + 0.001 * len(tokens)
            return super().scores(tokens)

    asked: list[int] = []
    decoder = AutoDecoder(4, lambda block: Scripted(block, {1: 1, 2: 1, 4: 1}, asked), clock=lambda: now[0])
    model = Slow()
    decoder.decode(model, Request(0, 3, deadline=1.0))
    assert decoder.costs is None and model.calls == [] and asked == [1]
    decoder.decode(model, Request(0, 3))
    assert decoder.costs is not None and set(model.calls) == {1, 2, 4} and model.kept == []
    assert [decoder.costs.ms(n) for n in (1, 2, 4)] == pytest.approx([5.0, 6.0, 8.0])
    calls = len(model.calls)
    decoder.decode(model, Request(0, 3))
    assert len(model.calls) == calls and asked == [1, 2, 4]


def test_sizes_without_room_are_not_measured() -> None:
    decoder, asked = scripted({1: 1, 2: 1, 4: 1, 8: 1, 16: 1}, None)
    decoder.decode(ToyModel(context=4), Request(0, 3))
    assert decoder.costs is not None and set(decoder.costs.ms_by_tokens) == {1, 2, 4}
    assert asked == [2]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), block=st.integers(1, 20), counts=st.lists(st.integers(1, 20), max_size=6))
def test_tokens_are_the_greedy_ones_whatever_is_chosen(seed: int, block: int, counts: list[int]) -> None:
    decoder = make_decoder("auto", block=block, seed=seed)
    for count in counts:
        decoded = decoder.decode(ToyModel(seed=seed), Request(0, count))
        assert list(decoded.tokens) == ToyModel(seed=seed).greedy([0], count)
        assert decoded.exact and not math.isnan(decoded.seconds)


def test_values_that_do_not_exist_are_refused_at_once() -> None:
    with pytest.raises(DecodingError, match="block is 0"):
        make_decoder("auto", block=0)
    with pytest.raises(DecodingError, match="initialization 'zero' is unknown"):
        make_decoder("auto", initialization="zero")
