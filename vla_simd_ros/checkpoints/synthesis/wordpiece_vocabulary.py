"""A synthetic BERT tokenizer: the structure and size of the real one, with made-up pieces.

Marks, then the characters that let any plain text be written, at the start of a word and inside it, then
whole words of household robotics, then syllables until the vocabulary has its size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.words import CHARACTERS, WORDS, syllables
from vla_simd_ros.checkpoints.wordpiece import BEGINNING, END, SPECIAL, UNKNOWN

_INSIDE = "##"
_LONGEST_WORD = 100
TOKENIZER_SETTINGS = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
"""Content of the tokenizer_config.json that goes with the tokenizer.json."""


def bert_tokenizer(vocabulary_size: int) -> dict[str, Any]:
    """Content of a tokenizer.json for a token table of ``vocabulary_size`` rows; it knows lower case only.

    Raises `OptionError` if the table is too small for the characters, or larger than can be filled.
    """
    pieces = list(itertools.islice(_pieces(), vocabulary_size))
    least = len(SPECIAL) + 2 * len(_characters())
    if vocabulary_size < least or len(pieces) < vocabulary_size:
        most = len(list(_pieces()))
        raise OptionError(f"text_config.vocab_size is {vocabulary_size}, expected {least} to {most}")
    return _document({piece: index for index, piece in enumerate(pieces)})


def _characters() -> list[str]:
    return list(dict.fromkeys(CHARACTERS.lower()))


def _pieces() -> Iterator[str]:
    """Pieces without repetition, the indispensable first."""
    characters = [*_characters(), *(_INSIDE + c for c in _characters())]
    later = itertools.chain.from_iterable((s, _INSIDE + s) for s in syllables() if s)
    return iter(dict.fromkeys(itertools.chain(SPECIAL, characters, WORDS, later)))


def _document(vocabulary: dict[str, int]) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    framed = [_mark(BEGINNING, 0), {"Sequence": {"id": "A", "type_id": 0}}, _mark(END, 0)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[name], "content": name, **flags} for name in SPECIAL],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": framed,
            "pair": [*framed, {"Sequence": {"id": "B", "type_id": 1}}, _mark(END, 1)],
            "special_tokens": {
                name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in (BEGINNING, END)
            },
        },
        "decoder": {"type": "WordPiece", "prefix": _INSIDE, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": _INSIDE,
            "max_input_chars_per_word": _LONGEST_WORD,
            "vocab": vocabulary,
        },
    }


def _mark(name: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": segment}}
