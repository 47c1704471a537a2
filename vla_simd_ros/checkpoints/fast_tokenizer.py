"""FAST: chunks of actions as words of their frequencies.

A chunk is turned column by column into its frequencies (a discrete cosine transform along time), which are
rounded to integers of ``1 / scale``; each integer is a character, and pairs of characters that are often
neighbours are merged. A folder as published keeps the merges in tokenizer.json and the rest in
processor_config.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.checkpoints.tokenizer import TOKENIZER_JSON

PROCESSOR_CONFIG = "processor_config.json"
ACTION_TOKENIZER_FOLDER = "action_tokenizer"
"""Where a checkpoint's is, unless it says otherwise."""
_NO_CHARACTER = "\ufffd"


class FastTokenizer:
    """Tokens to chunks. Raises `CheckpointError` for a folder that does not fit."""

    def __init__(self, folder: Path) -> None:
        where = folder / PROCESSOR_CONFIG
        config = read_json_object(where)
        self._scale = float(json_file.field(config, "scale", float, where))
        if self._scale <= 0:
            raise CheckpointError(f"{where}: scale is {self._scale}, expected a number above 0")
        self._least: int = json_file.field(config, "min_token", int, where)
        path = folder / TOKENIZER_JSON
        read_json_object(path)
        try:
            self._words = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path}: not a tokenizer: {error}") from None
        self.source = path

    @property
    def size(self) -> int:
        """Words there are, numbered from 0."""
        return int(self._words.get_vocab_size(with_added_tokens=True))

    def frequencies(self, words: Sequence[int]) -> npt.NDArray[np.int64]:
        """The integers that words stand for, one after the other. Raises ValueError where words end within
        one."""
        text = self._words.decode(list(words), skip_special_tokens=False)
        if _NO_CHARACTER in text:
            raise ValueError(f"the words spell no whole number at place {text.index(_NO_CHARACTER)}")
        return np.array([ord(character) for character in text], np.int64) + self._least

    def chunk(self, words: Sequence[int], rows: int, columns: int) -> npt.NDArray[np.float64]:
        """The chunk [rows, columns] that words spell; frequencies that are missing at the end are 0, and
        those past it are left out."""
        found = self.frequencies(words)[: rows * columns]
        filled = np.zeros(rows * columns)
        filled[: len(found)] = found
        return _waves(rows) @ (filled.reshape(rows, columns) / self._scale)


def _waves(rows: int) -> npt.NDArray[np.float64]:
    """What each frequency adds to each row: the inverse of the orthonormal cosine transform, float64 [rows,
    rows]."""
    frequency = np.arange(rows)
    waves = np.cos(np.pi * (np.arange(rows)[:, None] + 0.5) * frequency / rows) * np.sqrt(2 / rows)
    waves[:, 0] = np.sqrt(1 / rows)
    return np.asarray(waves)
