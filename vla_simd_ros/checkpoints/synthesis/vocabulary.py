"""A synthetic T5 tokenizer: the structure and size of the real one, with made-up pieces.

It starts with the marks and characters that let any plain text be written, then whole words of
household robotics, then syllables until the vocabulary has its size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from vla_simd_ros.checkpoints.spiece import SENTINELS
from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.words import CHARACTERS, WORDS, syllables

_SPECIAL = ("<pad>", "</s>", "<unk>")
_UNKNOWN = 2
# The real T5's token table has this many more rows than its tokenizer has tokens.
_UNUSED_ROWS = 28
_MARK = "▁"


def t5_tokenizer(vocabulary_size: int) -> dict[str, Any]:
    """Content of a tokenizer.json for a token table of ``vocabulary_size`` rows.

    Raises `OptionError` if the table is too small for the characters, or larger than can be filled.
    """
    count = vocabulary_size - _UNUSED_ROWS - SENTINELS
    pieces = list(itertools.islice(_pieces(), max(count - len(_SPECIAL), 0)))
    least = 2 * len(CHARACTERS) + 1 + len(_SPECIAL) + _UNUSED_ROWS + SENTINELS
    if vocabulary_size < least or len(pieces) < count - len(_SPECIAL):
        most = len(list(_pieces())) + len(_SPECIAL) + _UNUSED_ROWS + SENTINELS
        raise OptionError(f"text_config.vocab_size is {vocabulary_size}, expected {least} to {most}")
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(SENTINELS))]
    vocabulary = [[name, 0.0] for name in _SPECIAL]
    # Falling like the frequencies of words, and no two alike: no two splits of a word tie.
    vocabulary += [[piece, -2.0 - math.log(rank + 1.5)] for rank, piece in enumerate(pieces)]
    vocabulary += [[name, 0.0] for name in sentinels]
    return _document(vocabulary, sentinels)


def _pieces() -> Iterator[str]:
    """Pieces without repetition, the indispensable first."""
    characters = [_MARK, *CHARACTERS, *(_MARK + c for c in CHARACTERS)]
    words = [_MARK + word for word in WORDS] + [_MARK + word.capitalize() for word in WORDS]
    later = itertools.chain.from_iterable((_MARK + s, s) for s in syllables())
    return iter(dict.fromkeys(itertools.chain(characters, words, later)))


def special_token(index: int, content: str) -> dict[str, Any]:
    """A token of tokenizer.json that is a mark and no text."""
    return {
        "id": index,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def _document(vocabulary: list[list[Any]], sentinels: list[str]) -> dict[str, Any]:
    ids = {piece: index for index, (piece, _) in enumerate(vocabulary)}
    added = [special_token(ids[name], name) for name in (*_SPECIAL, *sentinels)]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    mark = {"type": "Metaspace", "replacement": _MARK, "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, mark]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                end,
                {"Sequence": {"id": "B", "type_id": 0}},
                end,
            ],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [ids["</s>"]], "tokens": ["</s>"]}},
        },
        "decoder": mark,
        "model": {"type": "Unigram", "unk_id": _UNKNOWN, "vocab": vocabulary, "byte_fallback": False},
    }
