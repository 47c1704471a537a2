"""The slow queries of a run: how slow, how many, and what happened around them and not around the others."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from vla_simd_ros.benchmarks.disturbances import Disturbance
from vla_simd_ros.benchmarks.statistics import TAIL_BOUND
from vla_simd_ros.benchmarks.table import markdown_table

_EDGES = (0.95, 1.0, 1.05, 1.1, TAIL_BOUND, 1.25, 1.5)
"""Of the histogram, in medians."""


@dataclass(frozen=True)
class Group:
    """Some queries, their mean time, and the mean of what happened around each."""

    queries: int
    mean_ms: float
    disturbance: Disturbance


@dataclass(frozen=True)
class Tail:
    """``counts`` are queries up to each of the histogram's edges and above the one before, and last those
    above them all. ``usual`` are the queries within the bound, ``slow`` the others; None where there are
    none."""

    counts: tuple[int, ...]
    usual: Group
    slow: Group | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"edges_in_medians": _EDGES, **asdict(self)}


def find_tail(times_ms: Sequence[float], disturbances: Sequence[Disturbance]) -> Tail:
    """Of queries and what happened around each of them; raises ``ValueError`` where the two do not match."""
    if len(times_ms) != len(disturbances) or not times_ms:
        raise ValueError(
            f"got {len(times_ms)} times and {len(disturbances)} disturbances, expected as many, at least one"
        )
    median = statistics.median(times_ms)
    counts = [0] * (len(_EDGES) + 1)
    for ms in times_ms:
        counts[sum(ms > edge * median for edge in _EDGES)] += 1
    pairs = list(zip(times_ms, disturbances, strict=True))
    usual = _group([pair for pair in pairs if pair[0] <= TAIL_BOUND * median])
    assert usual is not None  # at least the fastest
    return Tail(tuple(counts), usual, _group([pair for pair in pairs if pair[0] > TAIL_BOUND * median]))


def _group(pairs: Sequence[tuple[float, Disturbance]]) -> Group | None:
    if not pairs:
        return None
    columns = zip(*(astuple(disturbance) for _, disturbance in pairs), strict=True)
    means = Disturbance(*(statistics.fmean(column) for column in columns))
    return Group(len(pairs), statistics.fmean(ms for ms, _ in pairs), means)


def tail_tables(tail: Tail) -> list[str]:
    """Markdown: the histogram, and the two groups of queries beside each other."""
    limits = [f"to {edge:g}" for edge in _EDGES]
    histogram = markdown_table(
        ("Time in medians", "Queries"),
        [(label, str(n)) for label, n in zip((*limits, f"above {_EDGES[-1]:g}"), tail.counts, strict=True)],
    )
    header = (
        "Mean of a query",
        "Queries",
        "ms",
        "preempted",
        "slept",
        "page faults",
        "stolen ms",
        "other processes ms",
    )
    groups = {"within the bound": tail.usual, "slower": tail.slow}
    rows = [_row(name, group) for name, group in groups.items() if group]
    return [*histogram, "", *markdown_table(header, rows)]


def _row(name: str, group: Group) -> list[str]:
    means = astuple(group.disturbance)
    return [name, str(group.queries), f"{group.mean_ms:.1f}", *(f"{value:.1f}" for value in means)]
