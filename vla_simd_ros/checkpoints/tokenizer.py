"""Tokenization from the checkpoint's own files, without any hub."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from vla_simd_ros.checkpoints import wordpiece
from vla_simd_ros.checkpoints.errors import CheckpointError, InstructionError
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.checkpoints.prompt import Prompt
from vla_simd_ros.checkpoints.spiece import read_llama_tokenizer, read_sentencepiece_tokenizer

TOKENIZER_JSON = "tokenizer.json"
SPIECE_MODEL = "spiece.model"
LLAMA_MODEL = "tokenizer.model"
VOCABULARY = "vocab.txt"
END_OF_TEXT = "</s>"


@dataclass(frozen=True)
class TokenIds:
    """An instruction as token ids, with its marks; ``truncated`` if it did not fit."""

    ids: list[int]
    truncated: bool


@dataclass(frozen=True)
class Marks:
    """The tokens around every text, and whether a text may be empty between them."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    may_be_empty: bool

    @property
    def least(self) -> int:
        """The fewest tokens that a text comes to."""
        return len(self.before) + len(self.after) + (not self.may_be_empty)

    def __str__(self) -> str:
        return " and ".join((*self.before, *self.after))


# By the type of the model that splits words: T5's, BERT's, which frames an empty text too, and SmolVLM's and
# Llama's, which put nothing around a text.
_MARKS = {
    "Unigram": Marks((), (END_OF_TEXT,), may_be_empty=False),
    "WordPiece": Marks((wordpiece.BEGINNING,), (wordpiece.END,), may_be_empty=True),
    "BPE": Marks((), (), may_be_empty=False),
}


class Tokenizer:
    """Turns an instruction into token ids; at most ``max_tokens`` of them, the marks around it included.

    A text that does not end with ``ending`` gets it.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, marks: Marks, max_tokens: int, source: Path, ending: str = ""
    ) -> None:
        if max_tokens < marks.least:
            raise CheckpointError(
                f"the longest instruction is {max_tokens} tokens, expected at least {marks.least}"
                + (f", {marks} included" if str(marks) else "")
            )
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._before, self._after = (
            [_mark(backend, mark, source) for mark in group] for group in (marks.before, marks.after)
        )
        self._may_be_empty = marks.may_be_empty
        self._ending = ending
        self.max_tokens = max_tokens
        self.source = source

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest id this tokenizer can give."""
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def word_count(self) -> int:
        """The same without tokens that were added to the model's own."""
        return max(self._backend.get_vocab(with_added_tokens=False).values()) + 1

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text`` with its marks. Raises `InstructionError` for a text without content, if the
        model knows no such text."""
        return self.tokenize(text).ids

    def tokenize(self, text: str) -> TokenIds:
        """Like `encode`, and tells whether the text was cut to fit ``max_tokens``."""
        pieces = self._pieces(text)
        if not pieces and not self._may_be_empty:
            raise InstructionError(f"instruction {text!r} is empty, expected a sentence")
        if not text.endswith(self._ending):
            pieces = self._pieces(text + self._ending)
        kept = pieces[: self.max_tokens - len(self._before) - len(self._after)]
        return TokenIds([*self._before, *kept, *self._after], len(kept) < len(pieces))

    def words(self, text: str) -> list[int]:
        """The token ids of ``text`` alone, without marks."""
        return self._pieces(text)

    def token_id(self, token: str) -> int:
        """The id of one token. Raises `CheckpointError` if there is none of that name."""
        return _mark(self._backend, token, self.source)

    def _pieces(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids


class PromptTokenizer(Tokenizer):
    """Turns an instruction into the token ids of the whole prompt that it becomes part of.

    A prompt of more than ``max_tokens`` loses words at the end of its instruction, never what follows that.
    """

    def __init__(self, backend: tokenizers.Tokenizer, prompt: Prompt, max_tokens: int, source: Path) -> None:
        super().__init__(backend, Marks((prompt.begin,), (), may_be_empty=False), max_tokens, source)
        self._prompt = prompt
        least = len(self._ids("", prompt.widest_state))
        if max_tokens <= least:
            raise CheckpointError(
                f"the longest prompt is {max_tokens} tokens, expected more than the {least} around an "
                "instruction"
            )

    def tokenize(self, text: str) -> TokenIds:
        """See :class:`Tokenizer`. Where the prompt tells the robot's state, it is the widest."""
        if not text.strip():
            raise InstructionError(f"instruction {text!r} is empty, expected a sentence")
        return self.prompt(text, self._prompt.widest_state, self.max_tokens)

    def prompt(self, text: str, state: str, most: int) -> TokenIds:
        """The whole prompt in up to ``most`` tokens, the robot's state being ``state``."""
        ids, kept = self._ids(text, state), text
        while len(ids) > most and kept.strip():
            kept = kept.rstrip()[:-1] if len(kept.split()) == 1 else kept.rstrip().rpartition(" ")[0]
            ids = self._ids(kept, state)
        return TokenIds(ids[:most], kept != text)

    def _ids(self, text: str, state: str) -> list[int]:
        return [*self._before, *self._pieces(self._prompt.written(text, state))]


def load_tokenizer(
    folders: Iterable[Path],
    max_tokens: int,
    ending: str = "",
    advice: str = "",
    prompt: Prompt | None = None,
) -> Tokenizer:
    """The tokenizer in the first of ``folders`` that has one, in any of the forms of its file; for a policy
    that reads its instruction within a ``prompt``, that of the whole.

    Raises `CheckpointError`, with ``advice``, where there is none.
    """
    tried = tuple(folders)
    for folder in tried:
        for name, read in _READERS.items():
            if (folder / name).is_file():
                backend, marks = read(folder / name)
                if prompt is not None:
                    return PromptTokenizer(backend, prompt, max_tokens, folder / name)
                return Tokenizer(backend, marks, max_tokens, folder / name, ending)
    places = " or ".join(str(folder) for folder in tried)
    *names, last = _READERS
    raise CheckpointError(f"no {', '.join(names)} or {last} in {places}{advice}")


def _mark(backend: tokenizers.Tokenizer, mark: str, source: Path) -> int:
    index = backend.token_to_id(mark)
    if index is None:
        raise CheckpointError(f"{source}: has no token '{mark}'")
    return int(index)


def _read_tokenizer_json(path: Path) -> tuple[tokenizers.Tokenizer, Marks]:
    content: dict[str, Any] = read_json_object(path)
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if not isinstance(model, dict) or kind not in _MARKS:
        known = " or ".join(f"'{name}'" for name in _MARKS)
        raise CheckpointError(f"{path}: model type is {kind!r}, expected {known}")
    if kind == "Unigram" and model.get("unk_id", 0) is None:
        raise CheckpointError(
            f"{path}: model.unk_id is null, expected the number of the token for unknown text"
        )
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8")), _MARKS[kind]
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: not a tokenizer: {error}") from None


def _read_spiece_model(path: Path) -> tuple[tokenizers.Tokenizer, Marks]:
    return read_sentencepiece_tokenizer(path), _MARKS["Unigram"]


def _read_llama_model(path: Path) -> tuple[tokenizers.Tokenizer, Marks]:
    return read_llama_tokenizer(path), _MARKS["BPE"]


def _read_vocabulary(path: Path) -> tuple[tokenizers.Tokenizer, Marks]:
    return wordpiece.read_wordpiece_tokenizer(path), _MARKS["WordPiece"]


_READERS = {
    TOKENIZER_JSON: _read_tokenizer_json,
    SPIECE_MODEL: _read_spiece_model,
    LLAMA_MODEL: _read_llama_model,
    VOCABULARY: _read_vocabulary,
}
