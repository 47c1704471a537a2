"""The tokenizer that a GGUF file describes: byte-level BPE, and the template of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.gguf import GgufFile

_PREFIX = "tokenizer.ggml."
_MODEL = "gpt2"
# Token types: marks that are never part of a text, and others that the user of a model added to its tokens.
_CONTROL, _USER_DEFINED = 3, 4


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_apart() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


# How a text is cut into words before pairs are merged, by the name that a file gives it.
_CUTS = {"gpt-2": _gpt2, "default": _gpt2, "smollm": _digits_apart}


class GgufTokenizer:
    """Text to token ids and back.

    Raises CheckpointError, which names the file and the field, for a file whose tokens cannot be understood.
    """

    def __init__(self, file: GgufFile) -> None:
        self._path = file.path
        model = file.field(f"{_PREFIX}model", str)
        if model != _MODEL:
            raise CheckpointError(f"{file.path}: tokenizer of kind '{model}', expected '{_MODEL}'")
        tokens = file.field(f"{_PREFIX}tokens", list)
        self._vocabulary = len(tokens)
        self._backend = _backend(file, tokens)
        self.begin: int | None = self._mark(file, "bos_token_id")
        """The token that a text begins with, if there is one."""
        if not file.fields.get(f"{_PREFIX}add_bos_token", False):
            self.begin = None
        ends = {self._mark(file, f"{kind}_token_id") for kind in ("eos", "eot")}
        self.ends = frozenset(token for token in ends if token is not None)
        """The tokens that end a text."""
        self._template: str | None = file.fields.get("tokenizer.chat_template")
        self._marks = {
            name: "" if (token := self._mark(file, f"{kind}_token_id")) is None else tokens[token]
            for name, kind in (("bos_token", "bos"), ("eos_token", "eos"))
        }

    def encode(self, text: str) -> list[int]:
        """The tokens of ``text``, in which marks may be written out; with the one that texts begin with."""
        ids = list(self._backend.encode(text, add_special_tokens=False).ids)
        return ids if self.begin is None else [self.begin, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without marks."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def conversation(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text of a conversation, as far as the beginning of the answer to it. Each message has a "role"
        and a "content". A file without a template takes the contents one after the other."""
        if self._template is None:
            return "\n".join(message["content"] for message in messages)
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        try:
            template = environment.from_string(self._template)
            return template.render(messages=messages, add_generation_prompt=True, **self._marks)
        except jinja2.TemplateError as error:
            raise CheckpointError(f"{self._path}: field 'tokenizer.chat_template': {error}") from None

    def _mark(self, file: GgufFile, name: str) -> int | None:
        key = _PREFIX + name
        if key not in file.fields:
            return None
        token: int = file.field(key, int)
        if not 0 <= token < self._vocabulary:
            raise CheckpointError(
                f"{file.path}: field '{key}' is {token}, expected one of {self._vocabulary} tokens"
            )
        return token


def _backend(file: GgufFile, tokens: list[Any]) -> tokenizers.Tokenizer:
    merges = file.field(f"{_PREFIX}merges", list)
    pairs = [_pair(file, str(merge)) for merge in merges]
    vocabulary = {str(token): index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise CheckpointError(
            f"{file.path}: field '{_PREFIX}tokens' has {len(tokens)} tokens, not all different"
        )
    cut = file.fields.get(f"{_PREFIX}pre", "default")
    if cut not in _CUTS:
        known = ", ".join(_CUTS)
        raise CheckpointError(f"{file.path}: texts are cut by '{cut}', expected one of {known}")
    try:
        backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, fuse_unk=False))
    except Exception as error:  # the library has no type of its own for what it cannot use
        raise CheckpointError(f"{file.path}: field '{_PREFIX}merges': {error}") from None
    backend.pre_tokenizer = _CUTS[cut]()
    backend.decoder = decoders.ByteLevel()
    types = file.field(f"{_PREFIX}token_type", list)
    if len(types) != len(tokens):
        raise CheckpointError(
            f"{file.path}: field '{_PREFIX}token_type' has {len(types)} entries, expected {len(tokens)}"
        )
    marks = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    added = [token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED]
    backend.add_special_tokens([tokenizers.AddedToken(str(t), special=True, normalized=False) for t in marks])
    backend.add_tokens([tokenizers.AddedToken(str(t), normalized=False) for t in added])
    return backend


def _pair(file: GgufFile, merge: str) -> tuple[str, str]:
    first, space, second = merge.partition(" ")
    if not (first and space and second) or " " in second:
        raise CheckpointError(
            f"{file.path}: field '{_PREFIX}merges' has '{merge}', expected two parts and a space between"
        )
    return first, second
