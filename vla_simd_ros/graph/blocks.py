"""Weights of few bits: rows of blocks, each of which has a scale of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BLOCK_VALUES = 32
"""Adjacent weights of a row that share a scale."""

BLOCK_BYTES = {"q8_0": 34, "q4_0": 18, "q4_1": 20}
"""The formats, as ggml defines them, and the bytes of a block: a scale in float16 and, with q4_1, a minimum
in float16; then 32 integers of 8 or 4 bits. Of these, the first 16 are the lower halves of the bytes."""


@dataclass(frozen=True)
class Blocks:
    """The rows of a matrix in blocks: ``data`` is [rows, bytes of a row]."""

    form: str
    data: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        rows, row_bytes = self.data.shape
        return rows, row_bytes // BLOCK_BYTES[self.form] * BLOCK_VALUES

    def rows(self, start: int, stop: int) -> Blocks:
        """Some rows of the matrix."""
        return Blocks(self.form, self.data[start:stop])


def joined(parts: Sequence[Blocks]) -> Blocks:
    """The rows of matrices, in blocks of one format, one below the other."""
    return Blocks(parts[0].form, np.concatenate([part.data for part in parts]))
