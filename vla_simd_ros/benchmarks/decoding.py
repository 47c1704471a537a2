"""How action tokens were decoded in the queries of a benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from vla_simd_ros.decoding.base import Decoded


@dataclass(frozen=True)
class DecodingSummary:
    """Means of all queries, and the tokens per second of the slowest and the fastest query.

    ``fixed`` are the tokens that a pass gave their final value; ``pass_least`` are the tokens per second of
    the pass that fixed the fewest for its time.
    """

    passes: float
    fixed: float
    least: float
    mean: float
    most: float
    pass_least: float


def summarize_decoding(queries: Sequence[Decoded]) -> DecodingSummary:
    """Of one query or more."""
    rates = [decoded.mean_tokens_per_second for decoded in queries]
    passes = sum(len(decoded.passes) for decoded in queries)
    tokens = sum(len(decoded.tokens) for decoded in queries)
    return DecodingSummary(
        passes=passes / len(queries),
        fixed=sum(one.fixed for decoded in queries for one in decoded.passes) / passes,
        least=min(rates),
        mean=tokens / sum(decoded.seconds for decoded in queries),
        most=max(rates),
        pass_least=statistics.fmean(decoded.min_tokens_per_second for decoded in queries),
    )
