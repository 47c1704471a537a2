"""Synthetic tokenizers of pi0-FAST: one of texts as PaliGemma has it, and one of actions as FAST has it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

from vla_simd_ros.checkpoints.synthesis.llama_vocabulary import BYTES, SPACE, merged_words, pairs
from vla_simd_ros.checkpoints.synthesis.options import OptionError
from vla_simd_ros.checkpoints.synthesis.words import CHARACTERS, WORDS, syllables

BEGINNING = "<bos>"
_SPECIAL = ("<pad>", "<eos>", BEGINNING, "<unk>")
# What a prompt and an answer begin with.
_OPENINGS = ("Task", "Action")
_LEAST = -60
# Characters of one byte each: frequencies from -60 to 60.
_FREQUENCIES = 121


def gemma_tokenizer(words: int) -> dict[str, Any]:
    """Content of a tokenizer.json of ``words`` tokens. Raises `OptionError` for fewer than bytes and
    characters take, or more than can be made."""
    single = [*_SPECIAL, *BYTES, SPACE, "\n", *CHARACTERS]
    unmarked = merged_words(_OPENINGS, mark="")
    marked = merged_words(itertools.chain(("State",), WORDS, syllables(), pairs()))
    merges = list(itertools.islice(itertools.chain(unmarked, marked), max(words - len(single), 0)))
    if words != len(single) + len(merges):
        expected = f"{len(single)} or more" if words < len(single) else f"{len(single) + len(merges)} or less"
        raise OptionError(f"paligemma.text_config.vocab_size is {words}, expected {expected}")
    tokens = [*single, *(first + second for first, second in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    begin, sequence = (
        {"SpecialToken": {"id": BEGINNING, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    )
    mark = {"id": BEGINNING, "ids": [vocabulary[BEGINNING]], "tokens": [BEGINNING]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(name, vocabulary[name]) for name in _SPECIAL],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, sequence],
            "pair": [begin, sequence, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BEGINNING: mark},
        },
        "decoder": None,
        "model": _bpe(vocabulary, merges, unknown="<unk>", byte_fallback=True),
    }


def fast_tokenizer(seed: int, words: int) -> dict[str, Any]:
    """Content of FAST's tokenizer.json of ``words`` tokens: numbers, and pairs of small ones that became one.

    Raises `OptionError` for fewer than there are numbers, or more pairs than there are.
    """
    cut = ByteLevel(add_prefix_space=False, use_regex=False)
    single = [cut.pre_tokenize_str(chr(number))[0][0] for number in range(_FREQUENCIES)]
    near = range(-_LEAST - 12, -_LEAST + 13)
    every = [(single[a], single[b]) for a in near for b in near]
    if not 0 <= words - len(single) <= len(every):
        raise OptionError(f"fast_words is {words}, expected {len(single)} to {len(single) + len(every)}")
    order = np.random.default_rng(seed).permutation(len(every))
    merges = [every[index] for index in order[: words - len(single)]]
    tokens = [*single, *(first + second for first, second in merges)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": _byte_level(),
        "post_processor": None,
        "decoder": _byte_level(),
        "model": _bpe(
            {token: index for index, token in enumerate(tokens)}, merges, None, byte_fallback=False
        ),
    }


def fast_processor(words: int) -> dict[str, Any]:
    """The processor_config.json beside it."""
    return {
        "action_dim": None,
        "min_token": _LEAST,
        "processor_class": "UniversalActionProcessor",
        "scale": 10.0,
        "time_horizon": None,
        "vocab_size": words,
    }


def _byte_level() -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _added(name: str, index: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": name, **flags, "special": True}


def _bpe(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], unknown: str | None, byte_fallback: bool
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": unknown is not None,
        "byte_fallback": byte_fallback,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [list(pair) for pair in merges],
    }
