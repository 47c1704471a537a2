"""Actions spelled in bins: a token for each joint of each row of a chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.graph.ir import Array


class ActionBins:
    """Tokens 0 to ``bins - 1`` stand for the centres of ``bins`` equal parts of ``low`` to ``high``, float32
    [action_dim], row by row and joint by joint; the token after them is read first and is no action.

    The query program keeps ``observed`` rows, and one for each token of an instruction.
    """

    stop: frozenset[int] = frozenset()

    def __init__(self, bins: int, chunk_size: int, low: Array, high: Array, observed: int) -> None:
        self._bins = bins
        self._observed = observed
        self._joints = len(low)
        self.count = chunk_size * self._joints
        """Tokens of a chunk."""
        share = (np.arange(bins)[:, None] + 0.5) / bins
        wide_low, wide_high = low.astype(np.float64), high.astype(np.float64)
        self._centres = (wide_low + share * (wide_high - wide_low)).astype(np.float32)

    @property
    def vocabulary(self) -> int:
        """The bins, and the token that is read first."""
        return self._bins + 1

    @property
    def first(self) -> int:
        """The token after the bins."""
        return self._bins

    def prefix_rows(self, tokens: int | None) -> int:
        """Rows that the query program keeps."""
        return self._observed + (tokens or 0)

    def actions(self, tokens: Sequence[int]) -> Array:
        """The rows that ``tokens`` spell whole, float32 [rows, action_dim]. Raises DecodingError for a token
        outside the bins."""
        for place, token in enumerate(tokens):
            if not 0 <= token < self._bins:
                raise DecodingError(
                    f"token {token} at place {place} is no action, expected one of the bins 0 to "
                    f"{self._bins - 1}"
                )
        rows = len(tokens) // self._joints
        spelled = np.array(tokens[: rows * self._joints], np.intp).reshape(rows, self._joints)
        centres: Array = self._centres[spelled, np.arange(self._joints)]
        return centres
