"""SentencePiece models (``spiece.model``) as T5 uses them, run by the tokenizers library.

The model file is a protocol-buffer message; only the fields that T5 tokenization needs are read:
the pieces with their scores and types, and the compiled Unicode normalization.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import Unigram

from vla_simd_ros.checkpoints.errors import CheckpointError

# T5 appends these to the pieces of the model file, highest number first.
SENTINELS = 100
_SPACE = "▁"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UNKNOWN_TYPE, _CONTROL_TYPE = 2, 3
_UNIGRAM_MODEL = 1


@dataclass
class _Model:
    pieces: list[tuple[str, float]] = field(default_factory=list)
    unknown: int | None = None
    control: list[str] = field(default_factory=list)
    normalization: bytes = b""
    model_type: int = _UNIGRAM_MODEL


def read_sentencepiece_tokenizer(path: Path) -> Tokenizer:
    """The T5 tokenizer of a ``spiece.model``. Raises `CheckpointError` if the file is not such a model."""
    model = _read_model(path)
    if model.model_type != _UNIGRAM_MODEL:
        raise CheckpointError(f"{path}: model type {model.model_type}, expected {_UNIGRAM_MODEL} (unigram)")
    if model.unknown is None:
        raise CheckpointError(f"{path}: has no piece for unknown text")
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(SENTINELS))]
    vocabulary = model.pieces + [(name, 0.0) for name in sentinels]
    tokenizer = Tokenizer(Unigram(vocabulary, model.unknown, byte_fallback=False))
    if model.normalization:
        tokenizer.normalizer = normalizers.Precompiled(model.normalization)
    tokenizer.pre_tokenizer = t5_pre_tokenizer()
    special = [model.pieces[model.unknown][0], *model.control, *sentinels]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    return tokenizer


def t5_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Words apart at any white space, each with the space mark in front."""
    mark = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always", split=True)
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark])


def _read_model(path: Path) -> _Model:
    model = _Model()
    try:
        for number, value in _fields(path.read_bytes()):
            if number == 1 and isinstance(value, bytes):
                _add_piece(model, value)
            elif number == 2 and isinstance(value, bytes):
                settings = dict(_fields(value))
                model.model_type = int(settings.get(3, _UNIGRAM_MODEL))
            elif number == 3 and isinstance(value, bytes):
                charsmap = dict(_fields(value)).get(2, b"")
                model.normalization = charsmap if isinstance(charsmap, bytes) else b""
    except (IndexError, ValueError, struct.error) as error:
        raise CheckpointError(f"{path}: not a complete SentencePiece model: {error}") from None
    if not model.pieces:
        raise CheckpointError(f"{path}: not a SentencePiece model: it has no pieces")
    return model


def _add_piece(model: _Model, message: bytes) -> None:
    text, score, kind = "", 0.0, 1
    for number, value in _fields(message):
        if number == 1 and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif number == 2 and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == 3 and isinstance(value, int):
            kind = value
    if kind == _UNKNOWN_TYPE:
        model.unknown = len(model.pieces)
    elif kind == _CONTROL_TYPE:
        model.control.append(text)
    model.pieces.append((text, score))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of one protocol-buffer message; fixed-size values stay bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(message):
            raise ValueError(f"field {number} ends at byte {at + size} of {len(message)}")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    result, shift = 0, 0
    while True:
        byte = message[at]
        result |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return result, at
