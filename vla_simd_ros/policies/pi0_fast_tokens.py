"""What pi0-FAST's tokens stand for, and the prompt that they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.fast_tokenizer import ACTION_TOKENIZER_FOLDER, FastTokenizer
from vla_simd_ros.checkpoints.tokenizer import PromptTokenizer
from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.policies.pi0_fast_config import Pi0FastConfig

_NAMED = "action_tokenizer_name"
# What an answer begins with, and what ends it.
_OPENING = "Action: "
_OPENING_WORDS = ("Action", ":")
_END = "|"
_BEGIN = "<bos>"
# A column of the state is the number of the share of [-1, 1) that it falls into.
_SHARES = np.linspace(-1, 1, 257)[:-1]


class Pi0FastTokens:
    """Chunks of actions as FAST spells them, in words at the end of PaliGemma's vocabulary; see
    :class:`vla_simd_ros.policies.base.PromptedTokens`. Raises CheckpointError."""

    def __init__(self, checkpoint: Checkpoint, config: Pi0FastConfig) -> None:
        self._config = config
        self._tokenizer = _text_tokenizer(checkpoint, config)
        self._fast = FastTokenizer(_fast_folder(checkpoint))
        self._normalizer = checkpoint.normalizers[config.state.name]
        self._unnormalizer = checkpoint.unnormalizers[config.action.name]
        # The last word that stands for one of FAST's: its number 0.
        self._highest = self._tokenizer.word_count - 1 - config.skipped
        if self._highest - self._fast.size < -1:
            raise CheckpointError(
                f"{self._fast.source}: has {self._fast.size} tokens, expected no more than the "
                f"{self._highest + 1} words of {self._tokenizer.source} before the last {config.skipped} "
                "(fast_skip_tokens)"
            )
        self._opening = self._tokenizer.words(_OPENING)
        self._opening_words = [self._tokenizer.token_id(word) for word in _OPENING_WORDS]
        self.vocabulary = config.vocabulary
        self.first = self._tokenizer.token_id(_BEGIN)
        self.count = config.max_action_tokens
        self.stop = frozenset({self._tokenizer.token_id(_END)})

    def prefix_rows(self, tokens: int | None) -> int:
        """The images' and the prompt's; the mark that is read first is the last row behind them."""
        return len(self._config.cameras) * self._config.patches + (tokens or 0)

    def prompt(
        self, instruction: str, tokens: int, values: Mapping[str, Array]
    ) -> tuple[Mapping[str, Array], int]:
        """See :class:`vla_simd_ros.policies.base.PromptedTokens`."""
        ids = self._tokenizer.prompt(instruction, self._told(values["state"]), tokens).ids
        places = np.zeros(tokens + 1, np.int32)
        places[: len(ids)] = ids
        places[len(ids)] = self.first
        hidden = np.zeros(tokens + 1, np.float32)
        hidden[len(ids) + 1 :] = -np.inf
        given = {name: value for name, value in values.items() if name != "state"}
        return {**given, "prompt_ids": places, "prompt_hidden": hidden}, len(ids)

    def actions(self, tokens: Sequence[int]) -> Array:
        """The chunk, float32 [rows, width] in robot units. Raises DecodingError for tokens that spell
        none."""
        config = self._config
        ends = [place for place, token in enumerate(tokens) if token in self.stop]
        spelled = list(tokens[: ends[0]] if ends else tokens)
        if config.begins_with_words and spelled[:2] != self._opening_words:
            raise DecodingError(
                f"the answer begins with tokens {spelled[:2]}, expected {self._opening_words} ('Action:')"
            )
        words = [self._word(token, place) for place, token in enumerate(_without(spelled, self._opening))]
        try:
            chunk = self._fast.chunk(words, config.rows, config.action.channels).astype(np.float32)
        except ValueError as error:
            raise DecodingError(str(error)) from None
        scale, offset = self._unnormalizer.affine()
        return np.asarray(chunk * scale + offset, np.float32)

    def _word(self, token: int, place: int) -> int:
        """FAST's number of a word."""
        word = self._highest - token
        if not 0 <= word < self._fast.size:
            lowest = self._highest - self._fast.size + 1
            raise DecodingError(
                f"token {token} at place {place} stands for no action, expected {lowest} to {self._highest}"
            )
        return word

    def _told(self, state: Array) -> str:
        """The state as the prompt tells it."""
        normalizer = self._normalizer
        scaled = (state[0] - normalizer.offset) / normalizer.divisor
        if normalizer.shift is not None:
            scaled = scaled + normalizer.shift
        return " ".join(str(number) for number in np.digitize(scaled, _SHARES) - 1)


def _without(tokens: list[int], part: list[int]) -> list[int]:
    """The tokens without each occurrence of ``part``, from the left."""
    kept, at = list(tokens), 0
    while at <= len(kept) - len(part):
        if kept[at : at + len(part)] == part:
            del kept[at : at + len(part)]
        else:
            at += 1
    return kept


def _text_tokenizer(checkpoint: Checkpoint, config: Pi0FastConfig) -> PromptTokenizer:
    tokenizer = checkpoint.tokenizer()
    assert isinstance(tokenizer, PromptTokenizer)  # as the preprocessor writes a prompt
    if tokenizer.word_count > config.vocabulary:
        raise CheckpointError(
            f"{tokenizer.source}: has {tokenizer.word_count} words, expected at most "
            f"{config.vocabulary}, the rows of {config.prefix}{config.table}"
        )
    return tokenizer


def _fast_folder(checkpoint: Checkpoint) -> Path:
    named = checkpoint.named_folder(_NAMED)
    folder = checkpoint.folder / ACTION_TOKENIZER_FOLDER
    if named is None and not folder.is_dir():
        raise CheckpointError(
            f"{folder}: no such folder; put the files of the tokenizer '{checkpoint.config.get(_NAMED)}' "
            f"({_NAMED} of config.json) into it"
        )
    return named or folder
