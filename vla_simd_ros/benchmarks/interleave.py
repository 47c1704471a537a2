"""The order in which runners are timed: there and back again within each block (A-B-B-A).

Each block visits the runners in order and then in reverse, so a machine that slows down or speeds up
steadily within the block favours none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Plan:
    """How many queries of each runner, spread over how many blocks; ``per_visit`` at a time."""

    blocks: int
    per_visit: int

    @property
    def queries(self) -> int:
        """Timed queries per runner."""
        return self.blocks * 2 * self.per_visit


def make_plan(queries: int, blocks: int) -> Plan:
    """The plan with at least ``queries`` per runner in exactly ``blocks`` blocks.

    Raises ``ValueError`` when either is below one.
    """
    if queries < 1 or blocks < 1:
        raise ValueError(f"got {queries} queries in {blocks} blocks, expected at least one of each")
    return Plan(blocks, -(-queries // (2 * blocks)))


@dataclass(frozen=True)
class Visit:
    """One turn of one runner: ``count`` queries on observations ``first``, ``first + 1``, ..."""

    block: int
    runner: str
    first: int
    count: int


def visits(runners: Sequence[str], plan: Plan) -> Iterator[Visit]:
    """All turns in order. The observations of a turn are the same for every runner."""
    for block in range(plan.blocks):
        for half, order in enumerate((runners, tuple(reversed(runners)))):
            first = (2 * block + half) * plan.per_visit
            for runner in order:
                yield Visit(block, runner, first, plan.per_visit)


class Timed(Protocol):
    """Something that can be given a turn."""

    def time_queries(self, first: int, count: int) -> list[float]:
        """Milliseconds of each of ``count`` consecutive queries, the first on observation ``first``."""


class Progress(Protocol):
    """Told about each turn before it starts."""

    def __call__(self, visit: Visit, /) -> None: ...


def measure(runners: Mapping[str, Timed], plan: Plan, progress: Progress) -> dict[str, list[list[float]]]:
    """Times in milliseconds by runner, then by block, in the order in which they were taken."""
    times: dict[str, list[list[float]]] = {name: [[] for _ in range(plan.blocks)] for name in runners}
    for visit in visits(tuple(runners), plan):
        progress(visit)
        times[visit.runner][visit.block] += runners[visit.runner].time_queries(visit.first, visit.count)
    return times
