"""A synthetic byte-level tokenizer as SmolVLM has it: made-up pieces from bytes up, and its marks.

Pieces of more than one byte are words of household robotics, then syllables, as far as there is room.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel

from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.vocabulary import special_token
from vla_simd_ros.checkpoints.synthesis.words import WORDS, syllables

BEGINNING, END_OF_TEXT, PADDING = "<|im_start|>", "<|endoftext|>", "<|im_end|>"
IMAGE, AROUND_IMAGE, GLOBAL_IMAGE = "<image>", "<fake_token_around_image>", "<global-img>"
END_OF_UTTERANCE = "<end_of_utterance>"
SPECIAL = (END_OF_TEXT, BEGINNING, PADDING, GLOBAL_IMAGE, AROUND_IMAGE, IMAGE, END_OF_UTTERANCE)
# How a space before a word is written.
_SPACE = "\u0120"


def byte_tokenizer(vocabulary_size: int) -> dict[str, Any]:
    """Content of a tokenizer.json for a token table of ``vocabulary_size`` rows; some may stay unused.

    Raises `OptionError` if the table is too small for all bytes.
    """
    single = [*SPECIAL, *sorted(ByteLevel.alphabet())]
    if vocabulary_size < len(single):
        raise OptionError(f"vocab_size is {vocabulary_size}, expected {len(single)} or more")
    merges = list(itertools.islice(_merges(), vocabulary_size - len(single)))
    tokens = [*single, *(first + second for first, second in merges)]
    return _document({token: index for index, token in enumerate(tokens)}, merges)


def _merges() -> Iterator[tuple[str, str]]:
    """Pairs of pieces that become one, without repetition: each word grows letter by letter."""
    made = set()
    for word in itertools.chain(WORDS, syllables()):
        for end in range(1, len(word) + 1):
            piece = _SPACE + word[:end]
            if piece not in made:
                made.add(piece)
                yield piece[:-1], piece[-1]


def _document(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> dict[str, Any]:
    added = [special_token(vocabulary[name], name) for name in SPECIAL]
    bytes_of_words = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, bytes_of_words]},
        "post_processor": None,
        "decoder": bytes_of_words,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    }
