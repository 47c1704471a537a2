"""A synthetic T5 tokenizer: the structure and size of the real one, with made-up pieces.

It starts with the marks and characters that let any plain text be written, then whole words of
household robotics, then syllables until the vocabulary has its size.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterator
from typing import Any

from vla_simd_ros.checkpoints.spiece import SENTINELS
from vla_simd_ros.checkpoints.synthesis.options import OptionError

_SPECIAL = ("<pad>", "</s>", "<unk>")
_UNKNOWN = 2
# The real T5's token table has this many more rows than its tokenizer has tokens.
_UNUSED_ROWS = 28
_MARK = "▁"
_CHARACTERS = string.ascii_letters + string.digits + string.punctuation + "éèüöäßñç°"
_WORDS = """
the a an and or of to in into on onto from off up down with at by near it is this that left right front
back top bottom middle side first second third one two three four five red green blue yellow orange
black white purple small big large tall round square empty full open closed pick place put push pull
move lift lower grasp grab hold release drop take give bring turn rotate flip slide stack close press
pour wipe fold insert remove switch stop start wait go return reach point tape box cup drawer block cube
ball bowl plate pan pot mug bottle can lid book towel cloth sponge spoon fork knife marker pen key
button door handle shelf table basket bin tray stove microwave cabinet rack wine cream cheese butter
ketchup sauce soup milk juice moka coffee robot arm gripper hand object then please carefully slowly
next between behind under over inside outside
"""
# fmt: off
_ONSETS = (
    "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "br", "ch",
    "cl", "cr", "dr", "fl", "fr", "gr", "pl", "pr", "qu", "sh", "sl", "sp", "st", "th", "tr", "",
)
# fmt: on
_NUCLEI = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "ie", "oo", "ou", "y")
_CODAS = ("", "n", "r", "s", "t", "l", "d", "m", "ng", "ck", "st", "nt", "ly", "ment", "tion", "able")


def t5_tokenizer(vocabulary_size: int) -> dict[str, Any]:
    """Content of a tokenizer.json for a token table of ``vocabulary_size`` rows.

    Raises `OptionError` if the table is too small for the characters, or larger than can be filled.
    """
    count = vocabulary_size - _UNUSED_ROWS - SENTINELS
    pieces = list(itertools.islice(_pieces(), max(count - len(_SPECIAL), 0)))
    least = 2 * len(_CHARACTERS) + 1 + len(_SPECIAL) + _UNUSED_ROWS + SENTINELS
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
    characters = [_MARK, *_CHARACTERS, *(_MARK + c for c in _CHARACTERS)]
    common = _WORDS.split()
    words = [_MARK + word for word in common] + [_MARK + word.capitalize() for word in common]
    syllables = ("".join(parts) for parts in itertools.product(_ONSETS, _NUCLEI, _CODAS))
    later = itertools.chain.from_iterable((_MARK + s, s) for s in syllables)
    pairs = itertools.product(_ONSETS, _NUCLEI, _ONSETS[:20], _NUCLEI[:5])
    longer = itertools.chain.from_iterable((_MARK + "".join(p), "".join(p)) for p in pairs)
    return iter(dict.fromkeys(itertools.chain(characters, words, later, longer)))


def _document(vocabulary: list[list[Any]], sentinels: list[str]) -> dict[str, Any]:
    ids = {piece: index for index, (piece, _) in enumerate(vocabulary)}
    added = [
        {
            "id": ids[name],
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for name in (*_SPECIAL, *sentinels)
    ]
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
