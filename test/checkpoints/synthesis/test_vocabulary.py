from __future__ import annotations

import pytest

from vla_simd_ros.checkpoints.synthesis import OptionError
from vla_simd_ros.checkpoints.synthesis.vocabulary import t5_tokenizer


def test_full_size_has_the_structure_of_the_real_one() -> None:
    vocabulary = t5_tokenizer(32128)["model"]["vocab"]
    pieces = [piece for piece, _ in vocabulary]

    assert len(pieces) == 32100
    assert pieces[:3] == ["<pad>", "</s>", "<unk>"]
    assert pieces[-1] == "<extra_id_0>"
    assert pieces[-100] == "<extra_id_99>"
    assert len(set(pieces)) == len(pieces)
    scores = [score for _, score in vocabulary[3:-100]]
    assert scores == sorted(scores, reverse=True)


def test_is_the_same_every_time() -> None:
    assert t5_tokenizer(1000) == t5_tokenizer(1000)


@pytest.mark.parametrize("size", [0, 100, 200, 10_000_000])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(OptionError, match=rf"vocab_size is {size}, expected \d+ to \d+"):
        t5_tokenizer(size)
