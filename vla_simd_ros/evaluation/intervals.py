"""What so many successes of so many trials say about the probability of success: 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution: intervals hold 95 %."""


@dataclass(frozen=True)
class Proportion:
    """A share of successes, with the bounds of its 95 % interval; all three from 0 to 1."""

    successes: int
    trials: int
    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.successes}/{self.trials}, {self.share:.1%} ({self.low:.0%} to {self.high:.0%})"


def wilson(successes: int, trials: int) -> Proportion:
    """The share of successes with Wilson's score interval, without continuity correction.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes of {trials} trials, expected 0 to all of at least one")
    share = successes / trials
    spread = _Z * _Z / trials
    middle = (share + spread / 2.0) / (1.0 + spread)
    half = math.sqrt(share * (1.0 - share) * spread + spread * spread / 4.0) / (1.0 + spread)
    # At the ends rounding would leave bounds that are not quite 0 or 1.
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == trials else middle + half
    return Proportion(successes, trials, share, low, high)


@dataclass(frozen=True)
class Difference:
    """How much more often one of two conditions succeeds on the same episodes, with its 95 % interval.

    ``gained`` episodes succeed under this condition alone, ``lost`` ones under the other alone.
    """

    gained: int
    lost: int
    difference: float
    low: float
    high: float


def paired_difference(these: Sequence[bool], others: Sequence[bool]) -> Difference:
    """The difference of two shares of successes over the same trials, by Newcombe's method.

    His tenth method for paired proportions (1998): Wilson's intervals of both, squared and added, with the
    correlation of the two taken off.

    Raises:
        ValueError: not the same number of trials, or none.
    """
    if len(these) != len(others) or not these:
        raise ValueError(f"{len(these)} trials against {len(others)}, expected as many, at least one")
    pairs = list(zip(these, others, strict=True))
    both, gained, lost, neither = (
        pairs.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))
    )
    one, two = wilson(both + gained, len(pairs)), wilson(both + lost, len(pairs))
    phi = _correlation(both, gained, lost, neither)
    below, above = one.share - one.low, two.high - two.share
    down = math.sqrt(max(0.0, below * below - 2.0 * phi * below * above + above * above))
    below, above = two.share - two.low, one.high - one.share
    up = math.sqrt(max(0.0, above * above - 2.0 * phi * above * below + below * below))
    difference = one.share - two.share
    return Difference(gained, lost, difference, difference - down, difference + up)


def _correlation(both: int, gained: int, lost: int, neither: int) -> float:
    """Phi of the four counts, corrected for continuity where it is positive; 0 where it is not defined."""
    total = both + gained + lost + neither
    margins = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    if not margins:
        return 0.0
    product = float(both * neither - gained * lost)
    if product > 0.0:
        product = max(product - total / 2.0, 0.0)
    return product / math.sqrt(margins)
