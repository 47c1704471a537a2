from __future__ import annotations

import pytest
from toy_model import ToyModel

from vla_simd_ros.decoding.base import DecodingError, Request
from vla_simd_ros.decoding.decoders import DECODERS, make_decoder
from vla_simd_ros.decoding.parallel import ParallelDecoder


def test_each_decoder_has_what_it_uses() -> None:
    made = {name: make_decoder(name, block=5, sigma=0.6, max_passes=9) for name in DECODERS}
    assert made.pop("auto").name == "auto"
    assert made == {
        "autoregressive": ParallelDecoder("autoregressive", 1, 0.0, 9),
        "jacobi": ParallelDecoder("jacobi", 5, 0.0, 9),
        "early_exit": ParallelDecoder("early_exit", 5, 0.6, 9),
    }


def test_they_can_be_exchanged() -> None:
    exact = ToyModel(seed=3).greedy([0], 12)
    for name in DECODERS:
        decoded = make_decoder(name, sigma=1.0).decode(ToyModel(seed=3), Request(0, 12))
        assert list(decoded.tokens) == exact


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(
        DecodingError, match="'greedy' is unknown, expected one of autoregressive, jacobi, early"
    ):
        make_decoder("greedy")
    with pytest.raises(DecodingError, match="sigma is 0, expected a probability above 0"):
        make_decoder("early_exit", sigma=0)
