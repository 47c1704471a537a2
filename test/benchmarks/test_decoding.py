"""What is told of how tokens were decoded, worked out by hand."""

from __future__ import annotations

import pytest

from vla_simd_ros.benchmarks.decoding import DecodingSummary, summarize_decoding
from vla_simd_ros.decoding.base import Decoded, Exit, Pass


def decoded(*passes: tuple[int, float]) -> Decoded:
    """Of passes that fixed so many tokens in so many seconds."""
    spent = tuple(Pass(8, 0, (), fixed, 0.9, seconds) for fixed, seconds in passes)
    return Decoded((0,) * sum(fixed for fixed, _ in passes), spent, Exit.FIXED_POINT, True)


def test_summary_of_two_queries() -> None:
    # 8 tokens in 2 s, the slowest pass 2 a second; 8 tokens in 0.5 s.
    found = summarize_decoding([decoded((2, 1.0), (6, 1.0)), decoded((8, 0.5))])
    assert found == DecodingSummary(
        passes=1.5,
        fixed=pytest.approx(16 / 3),
        least=4.0,
        mean=6.4,
        most=16.0,
        pass_least=(2.0 + 16.0) / 2,
    )
