"""BERT's tokenization from a ``vocab.txt``: a token a line, and what is said of them beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError

UNKNOWN = "[UNK]"
BEGINNING, END = "[CLS]", "[SEP]"
SPECIAL = ("[PAD]", UNKNOWN, BEGINNING, END, "[MASK]")
TOKENIZER_CONFIG = "tokenizer_config.json"


def read_wordpiece_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a ``vocab.txt``. Raises `CheckpointError` if the file is no such vocabulary.

    Case and accents are treated as the file ``tokenizer_config.json`` beside it says; text is made lower case
    where nothing is said.
    """
    vocabulary = _vocabulary(path)
    config = _config(path.with_name(TOKENIZER_CONFIG))
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config["tokenize_chinese_chars"],
        strip_accents=config["strip_accents"],
        lowercase=config["do_lower_case"],
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    present = [AddedToken(name, normalized=False, special=True) for name in SPECIAL if name in vocabulary]
    tokenizer.add_special_tokens(present)
    return tokenizer


def _vocabulary(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if lines and not lines[-1]:
        lines.pop()
    vocabulary = {token: index for index, token in enumerate(lines)}
    if UNKNOWN not in vocabulary:
        raise CheckpointError(f"{path}: has no token '{UNKNOWN}', expected a token a line")
    return vocabulary


def _config(path: Path) -> dict[str, Any]:
    """Settings of the normalization; ``strip_accents`` None goes with ``do_lower_case``."""
    stated = json_file.read_json_object(path) if path.is_file() else {}
    settings: dict[str, Any] = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}
    for name in settings:
        if stated.get(name) is not None:
            settings[name] = json_file.field(stated, name, bool, path)
    return settings
