"""Summaries of query times, and the comparison of two runners measured in the same blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TAIL_QUERIES = 500
"""From fewer queries than this, a 99th percentile is hardly more than the maximum."""

TAIL_BOUND = 1.15
"""What a robot can rely on: where nothing else runs, the 99th percentile of this engine is at most so many
times its median."""

_RESAMPLES = 10_000
_SEED = 0


@dataclass(frozen=True)
class Summary:
    """Percentiles of a set of times, in milliseconds; quantiles are interpolated linearly."""

    median_ms: float
    p95_ms: float
    p99_ms: float
    n: int


def summarize(times_ms: Sequence[float]) -> Summary:
    """Summary of query times in milliseconds.

    Raises ``ValueError`` when there are none, or when one is negative or not finite.
    """
    values = _checked(times_ms)
    median, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99))
    return Summary(float(median), float(p95), float(p99), len(values))


@dataclass(frozen=True)
class Comparison:
    """How many times longer one runner takes than another, over blocks that hold both.

    ``ratio`` is the median over blocks of (median slower time / median faster time) within the block, so
    that drift of the machine between blocks cancels; ``low`` and ``high`` bound it with 95 % confidence.
    """

    ratio: float
    low: float
    high: float
    blocks_above_one: int
    blocks: int


def compare(blocks_ms: Sequence[Sequence[float]], base_blocks_ms: Sequence[Sequence[float]]) -> Comparison:
    """Times of one runner over those of a base runner, block by block (above one: the base is faster).

    Raises ``ValueError`` when the two do not have the same, non-zero number of blocks.
    """
    if len(blocks_ms) != len(base_blocks_ms) or not blocks_ms:
        raise ValueError(
            f"got {len(blocks_ms)} blocks against {len(base_blocks_ms)}, expected as many, at least one"
        )
    ratios = np.array(
        [
            np.median(_checked(times)) / np.median(_checked(base))
            for times, base in zip(blocks_ms, base_blocks_ms, strict=True)
        ]
    )
    low, high = bootstrap_median(ratios)
    return Comparison(float(np.median(ratios)), low, high, int((ratios > 1).sum()), len(ratios))


def bootstrap_median(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    """Bounds of the 95 % percentile-bootstrap interval of the median; the same for the same values."""
    data = np.asarray(values, dtype=np.float64)
    if data.size == 0:
        raise ValueError("got no values, expected at least one")
    picks = np.random.default_rng(_SEED).integers(0, data.size, (_RESAMPLES, data.size))
    low, high = np.quantile(np.median(data[picks], axis=1), (0.025, 0.975))
    return float(low), float(high)


def _checked(times_ms: Sequence[float]) -> npt.NDArray[np.float64]:
    values = np.asarray(times_ms, dtype=np.float64)
    if values.size == 0:
        raise ValueError("got no times, expected at least one")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise ValueError(f"got a time of {values[bad][0]} ms, expected finite and not negative")
    return values
