from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from vla_simd_ros.checkpoints.synthesis.byte_vocabulary import SPECIAL, byte_tokenizer
from vla_simd_ros.checkpoints.synthesis.options import OptionError


def test_any_text_can_be_written_and_read_back() -> None:
    tokenizer = Tokenizer.from_str(json.dumps(byte_tokenizer(2000)))
    for text in ("put the tape into the box\n", "\u6f22 \x00 \U0001f916\t12", "  two  spaces "):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_words_of_the_household_are_single_tokens() -> None:
    tokenizer = Tokenizer.from_str(json.dumps(byte_tokenizer(49280)))
    assert tokenizer.encode(" put the tape").tokens == ["Ġput", "Ġthe", "Ġtape"]


@pytest.mark.parametrize("size", [263, 264, 49280])
def test_it_never_has_more_tokens_than_the_table_has_rows(size: int) -> None:
    vocabulary = byte_tokenizer(size)["model"]["vocab"]
    assert len(vocabulary) <= size and sorted(vocabulary.values()) == list(range(len(vocabulary)))
    assert [vocabulary[name] for name in SPECIAL] == list(range(7))


def test_a_table_without_room_for_all_bytes() -> None:
    with pytest.raises(OptionError, match="vocab_size is 262, expected 263 or more"):
        byte_tokenizer(262)
