"""Decoding one token after the other or several at once, whichever is faster here and for these texts.

What a pass costs is measured on the model; how many tokens it fixes is seen in the queries. All that is
chosen from gives the greedy tokens, so the choice changes nothing but time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from vla_simd_ros.decoding.base import Clock, Decoded, Decoder, Request, TokenModel
from vla_simd_ros.tuning.pass_costs import PassCosts, measure_passes

_REPEATS = 5
_NEWEST = 0.25
"""The part that the newest query has in what is known of a block."""
_LOOK_AGAIN = 32
"""After so many queries, another block than the fastest is tried."""


class AutoDecoder:
    """Jacobi with the block that decodes fastest: ``block``, or a power of two below it; 1 is one token after
    the other.

    ``make`` gives the decoder of a block. Without ``costs``, the first query without a deadline measures
    them; those before it are decoded one token after the other. Then each block that can pay has one query to
    show how many tokens its passes fix, and again after some time.
    """

    name = "auto"

    def __init__(
        self,
        block: int,
        make: Callable[[int], Decoder],
        costs: PassCosts | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        powers = (1 << i for i in range(1, block.bit_length()))
        self._blocks: list[int] = sorted({block, *powers} - {1})
        self._make = make
        self._clock = clock
        self._fixed: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._queries = 0
        self.costs = costs
        """What passes cost, when that is known."""

    def decode(self, model: TokenModel, request: Request) -> Decoded:
        """See :class:`vla_simd_ros.decoding.base.Decoder`."""
        if self.costs is None and math.isinf(request.deadline):
            self.costs = self._measure(model, request.last)
        block = 1 if self.costs is None else self._choose(self.costs)
        decoded = self._make(block).decode(model, request)
        if self.costs is not None:
            self._watch(self.costs, block, decoded)
        return decoded

    def _measure(self, model: TokenModel, token: int) -> PassCosts | None:
        """The costs of passes that there is room for; nothing is kept of them."""

        def milliseconds(tokens: int) -> float:
            began = self._clock()
            model.scores([token] * tokens)
            return max(1e3 * (self._clock() - began), 1e-6)

        sizes = [size for size in (1, *self._blocks) if size <= model.room]
        return measure_passes(milliseconds, sizes, _REPEATS) if sizes else None

    def _choose(self, costs: PassCosts) -> int:
        """The block for the next query."""
        self._queries += 1
        worth = [block for block in self._blocks if costs.break_even(block) < block]
        new = [block for block in worth if block not in self._fixed]
        if new:
            return new[0]
        if worth and self._queries % _LOOK_AGAIN == 0:
            return min(worth, key=lambda block: self._seen[block])
        return costs.best_block(self._fixed)

    def _watch(self, costs: PassCosts, block: int, decoded: Decoded) -> None:
        """Remember how many tokens a pass of ``block`` rows would have fixed for what these passes cost: they
        have fewer rows the more tokens are certain."""
        spent = sum(costs.ms(one.rows) for one in decoded.passes)
        fixed = costs.ms(block) * sum(one.fixed for one in decoded.passes) / spent
        self._fixed[block] = (1 - _NEWEST) * self._fixed.get(block, fixed) + _NEWEST * fixed
        self._seen[block] = self._queries
