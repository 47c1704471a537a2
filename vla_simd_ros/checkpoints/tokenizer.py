"""T5 tokenization from the checkpoint's own files, without any hub."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from vla_simd_ros.checkpoints.errors import CheckpointError, InstructionError
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.checkpoints.spiece import read_sentencepiece_tokenizer

TOKENIZER_JSON = "tokenizer.json"
SPIECE_MODEL = "spiece.model"
END_OF_TEXT = "</s>"


@dataclass(frozen=True)
class TokenIds:
    """An instruction as token ids, ``</s>`` last; ``truncated`` if it did not fit."""

    ids: list[int]
    truncated: bool


class Tokenizer:
    """Turns an instruction into T5 token ids; at most ``max_tokens`` of them, ``</s>`` included."""

    def __init__(self, backend: tokenizers.Tokenizer, max_tokens: int, source: Path) -> None:
        if max_tokens <= 1:
            raise CheckpointError(f"tokenizer_max_length is {max_tokens}, expected at least 2, </s> included")
        end = backend.token_to_id(END_OF_TEXT)
        if end is None:
            raise CheckpointError(f"{source}: has no token '{END_OF_TEXT}'")
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._end = int(end)
        self.max_tokens = max_tokens
        self.source = source

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest id this tokenizer can give."""
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``, ``</s>`` last. Raises `InstructionError` for a text without content."""
        return self.tokenize(text).ids

    def tokenize(self, text: str) -> TokenIds:
        """Like `encode`, and tells whether the text was cut to fit ``max_tokens``."""
        pieces: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        if not pieces:
            raise InstructionError(f"instruction {text!r} is empty, expected a sentence")
        kept = pieces[: self.max_tokens - 1]
        return TokenIds([*kept, self._end], len(kept) < len(pieces))


def load_tokenizer(folders: Iterable[Path], max_tokens: int) -> Tokenizer:
    """The tokenizer in the first of ``folders`` that has one, as ``tokenizer.json`` or ``spiece.model``."""
    tried = tuple(folders)
    for folder in tried:
        for name, read in _READERS.items():
            if (folder / name).is_file():
                return Tokenizer(read(folder / name), max_tokens, folder / name)
    places = " or ".join(str(folder) for folder in tried)
    raise CheckpointError(f"no {TOKENIZER_JSON} or {SPIECE_MODEL} in {places}")


def _read_tokenizer_json(path: Path) -> tokenizers.Tokenizer:
    content: dict[str, Any] = read_json_object(path)
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if not isinstance(model, dict) or kind != "Unigram":
        raise CheckpointError(f"{path}: model type is {kind!r}, expected 'Unigram' (a T5 tokenizer)")
    if model.get("unk_id", 0) is None:
        raise CheckpointError(
            f"{path}: model.unk_id is null, expected the number of the token for unknown text"
        )
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: not a tokenizer: {error}") from None


_READERS = {TOKENIZER_JSON: _read_tokenizer_json, SPIECE_MODEL: read_sentencepiece_tokenizer}
