"""A synthetic tokenizer as Llama 2 has it: pieces of words that merge letter by letter, bytes for all
else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.vocabulary import special_token
from vla_simd_ros.checkpoints.synthesis.words import CHARACTERS, WORDS, syllables

BEGINNING, END, UNKNOWN, PADDING = "<s>", "</s>", "<unk>", "<PAD>"
_SPECIAL = (UNKNOWN, BEGINNING, END)
SPACE = "▁"
"""How a space before a word is written."""
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The pieces that everything else is written in."""
# What a question to a robot is made of.
_QUESTION = ("In", "What", "action", "should", "robot", "take", "Out")


def llama_tokenizer(words: int) -> dict[str, Any]:
    """Content of a tokenizer.json of ``words`` tokens, and one more for padding behind them.

    Raises `OptionError` for fewer than bytes and characters take, or more than can be made.
    """
    single = [*_SPECIAL, *BYTES, SPACE, *CHARACTERS]
    merges = list(itertools.islice(_merges(), max(words - len(single), 0)))
    if words != len(single) + len(merges):
        expected = f"{len(single)} or more" if words < len(single) else f"{len(single) + len(merges)} or less"
        raise OptionError(f"text_config.vocab_size less pad_to_multiple_of is {words}, expected {expected}")
    tokens = [*single, *(first + second for first, second in merges)]
    return _document({token: index for index, token in enumerate(tokens)}, merges)


def _merges() -> Iterator[tuple[str, str]]:
    return merged_words(itertools.chain(_QUESTION, WORDS, syllables(), pairs()))


def merged_words(words: Iterable[str], mark: str = SPACE) -> Iterator[tuple[str, str]]:
    """Pairs of pieces that become one, without repetition: each word grows letter by letter, behind a
    ``mark``."""
    made = set()
    for word in words:
        for end in range(1 if mark else 2, len(word) + 1):
            piece = mark + word[:end]
            if piece not in made:
                made.add(piece)
                yield piece[:-1], piece[-1]


def pairs() -> Iterator[str]:
    """Syllables after syllables, for a vocabulary of the published size."""
    first = list(itertools.islice(syllables(), 400))
    return (a + b for a in first for b in first)


def _document(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> dict[str, Any]:
    marks = {**{name: vocabulary[name] for name in _SPECIAL}, PADDING: len(vocabulary)}
    added = [special_token(index, name) for name, index in marks.items()]
    begin = {"SpecialToken": {"id": BEGINNING, "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, sequence],
            "pair": [begin, sequence, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                BEGINNING: {"id": BEGINNING, "ids": [vocabulary[BEGINNING]], "tokens": [BEGINNING]}
            },
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    }
