"""SentencePiece models as T5 (``spiece.model``) and Llama (``tokenizer.model``) use them, run by the
tokenizers library.

The model file is a protocol-buffer message; only the fields that their tokenization needs are read:
the pieces with their scores and types, and the compiled Unicode normalization.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from vla_simd_ros.checkpoints.errors import CheckpointError

# T5 appends these to the pieces of the model file, highest number first.
SENTINELS = 100
_SPACE = "▁"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UNKNOWN_TYPE, _CONTROL_TYPE = 2, 3
_UNIGRAM_MODEL, _BPE_MODEL = 1, 2
_KINDS = {_UNIGRAM_MODEL: "unigram", _BPE_MODEL: "byte-pair encoding"}


@dataclass
class _Model:
    pieces: list[tuple[str, float]] = field(default_factory=list)
    unknown: int | None = None
    control: list[str] = field(default_factory=list)
    normalization: bytes = b""
    model_type: int = _UNIGRAM_MODEL


def read_sentencepiece_tokenizer(path: Path) -> Tokenizer:
    """The T5 tokenizer of a ``spiece.model``. Raises `CheckpointError` if the file is not such a model."""
    model, unknown = _read_kind(path, _UNIGRAM_MODEL)
    sentinels = [f"<extra_id_{i}>" for i in reversed(range(SENTINELS))]
    vocabulary = model.pieces + [(name, 0.0) for name in sentinels]
    tokenizer = Tokenizer(Unigram(vocabulary, unknown, byte_fallback=False))
    if model.normalization:
        tokenizer.normalizer = normalizers.Precompiled(model.normalization)
    tokenizer.pre_tokenizer = t5_pre_tokenizer()
    special = [model.pieces[unknown][0], *model.control, *sentinels]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    return tokenizer


def read_llama_tokenizer(path: Path) -> Tokenizer:
    """The Llama tokenizer of a ``tokenizer.model``: what is no piece is written in bytes. Raises
    `CheckpointError` if the file is not such a model."""
    model, unknown = _read_kind(path, _BPE_MODEL)
    vocabulary = {piece: index for index, (piece, _) in enumerate(model.pieces)}
    mark = model.pieces[unknown][0]
    merges = _merges(model, vocabulary)
    tokenizer = Tokenizer(BPE(vocabulary, merges, unk_token=mark, fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
    special = [mark, *model.control]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    return tokenizer


def _merges(model: _Model, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """Pairs of pieces that become one, those of the piece with the highest score first: a model of this kind
    says no more of its merges than that."""
    merges = []
    for piece, score in model.pieces:
        if piece in model.control:
            continue
        pairs = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        merges += [(score, len(first), len(second), first, second) for first, second in known]
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    return [merge[3:] for merge in merges]


def t5_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Words apart at any white space, each with the space mark in front."""
    mark = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always", split=True)
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), mark])


def _read_kind(path: Path, kind: int) -> tuple[_Model, int]:
    """A model of one kind, and its piece for unknown text."""
    model = _read_model(path)
    if model.model_type != kind:
        raise CheckpointError(f"{path}: model type {model.model_type}, expected {kind} ({_KINDS[kind]})")
    if model.unknown is None:
        raise CheckpointError(f"{path}: has no piece for unknown text")
    return model, model.unknown


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
