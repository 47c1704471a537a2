"""A token model whose keys and values are states of compiled programs.

Programs exist for passes of several sizes. All append to the same states, so that the prefix is computed
once, whatever follows; rows that a pass needs not come last, and are never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from vla_simd_ros.decoding.base import DecodingError
from vla_simd_ros.executors.base import Runnable
from vla_simd_ros.graph.ir import Array, Lifetime

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""Rows of the passes that there are programs for."""


def sizes_for(block: int) -> tuple[int, ...]:
    """Rows of passes where most have those of a block of ``block`` tokens: that many, too."""
    return tuple(sorted({*SIZES, block})) if block < SIZES[-1] else SIZES


def rows_for(tokens: int, sizes: Sequence[int]) -> int:
    """The smallest of ``sizes`` that ``tokens`` fit into; the largest there is for more."""
    return next((size for size in sizes if size >= tokens), sizes[-1])


def state_rows(context: int) -> int:
    """Rows of states for ``context`` tokens, and for what a pass of any size appends past them."""
    return context + SIZES[-1] - 1


class CachedModel:
    """The programs of ``load(rows)``, for as many rows as one of ``sizes``, the last of which is that of
    :data:`SIZES`.

    Their query programs, which only :meth:`begin` runs, take ``prefix_ids`` and ``prefix_positions``, int32
    [rows], and leave keys and values; their step programs take ``step_ids`` and ``step_positions``, and give
    ``scores`` float32 [rows, vocabulary].
    """

    def __init__(
        self,
        load: Callable[[int], Runnable],
        context: int,
        vocabulary: int,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        self._load = load
        self._sizes = sizes
        self._context = context
        self._vocabulary = vocabulary
        self._length = 0
        self._scored = 0

    @property
    def vocabulary(self) -> int:
        """Tokens there are."""
        return self._vocabulary

    @property
    def room(self) -> int:
        """How many more tokens can be kept."""
        return self._context - self._length

    @property
    def length(self) -> int:
        """Tokens that are kept."""
        return self._length

    def begin(self, prefix: Sequence[int]) -> None:
        """Keep the tokens of ``prefix``, and no others."""
        self._length = self._scored = 0
        self._check(prefix)
        for ids, rows in self._parts(prefix):
            inputs = {"prefix_ids": _padded(ids, rows), "prefix_positions": self._positions(rows)}
            self._load(rows).run(Lifetime.QUERY, inputs)
            self._length += len(ids)

    def go_on(self, length: int) -> None:
        """Go on behind the first ``length`` tokens, which are in the states."""
        self._length, self._scored = length, 0

    def scores(self, tokens: Sequence[int]) -> Array:
        """See :class:`vla_simd_ros.decoding.base.TokenModel`."""
        self._check(tokens)
        kept = self._length
        results = []
        try:
            for ids, rows in self._parts(tokens):
                inputs = {"step_ids": _padded(ids, rows), "step_positions": self._positions(rows)}
                results.append(self._load(rows).run(Lifetime.STEP, inputs)["scores"][: len(ids)])
                self._length += len(ids)
        finally:
            self._length = kept
        self._scored = len(tokens)
        return results[0] if len(results) == 1 else np.concatenate(results)

    def keep(self, count: int) -> None:
        """See :class:`vla_simd_ros.decoding.base.TokenModel`."""
        if not 0 <= count <= self._scored:
            raise ValueError(f"{count} tokens to keep, expected no more than the {self._scored} scored last")
        self._length += count
        self._scored = 0

    def _parts(self, tokens: Sequence[int]) -> list[tuple[Sequence[int], int]]:
        """The tokens in parts, each with the rows of a program that takes it: whole ones of the largest, then
        the smallest that takes the rest."""
        cuts = [*range(0, len(tokens), self._sizes[-1]), len(tokens)]
        parts = [tokens[first:last] for first, last in pairwise(cuts)]
        return [(part, rows_for(len(part), self._sizes)) for part in parts]

    def _positions(self, rows: int) -> Array:
        return np.arange(self._length, self._length + rows, dtype=np.int32)

    def _check(self, tokens: Sequence[int]) -> None:
        if len(tokens) > self.room:
            raise DecodingError(
                f"{len(tokens)} tokens after {self._length}, expected no more than the context of "
                f"{self._context} has room for"
            )
        for place, token in enumerate(tokens):
            if not 0 <= token < self._vocabulary:
                raise DecodingError(
                    f"token {token} at place {place} is not in the vocabulary of {self._vocabulary}"
                )


def _padded(ids: Sequence[int], rows: int) -> Array:
    padded = np.zeros(rows, np.int32)
    padded[: len(ids)] = ids
    return padded
