"""Where the time of a query goes: operation by operation, then by block and by kind of operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vla_simd_ros.benchmarks.table import markdown_table


@dataclass(frozen=True)
class OpTime:
    """One operation of the query program: what it is, its work, and its time.

    ``shape`` is written as the operation's sizes; ``rows`` and ``cols`` are those of its result;
    ``nbytes`` is what it reads and writes at least; ``ms`` is its shortest time over the profiled queries.
    """

    name: str
    kind: str
    block: str
    shape: str
    rows: int
    cols: int
    flops: int
    nbytes: int
    ms: float


@dataclass(frozen=True)
class Group:
    """Operations taken together; ``share`` is their part of the time of all."""

    label: str
    ops: int
    ms: float
    share: float
    flops: int

    @property
    def gflops_per_s(self) -> float:
        """Rate in GFLOP/s."""
        return self.flops / self.ms / 1e6 if self.ms else 0.0


def group_by(ops: Sequence[OpTime], label: Callable[[OpTime], str]) -> list[Group]:
    """Operations summed by label, in order of first appearance."""
    total = sum(op.ms for op in ops)
    members: dict[str, list[OpTime]] = {}
    for op in ops:
        members.setdefault(label(op), []).append(op)
    return [
        Group(
            name,
            len(group),
            sum(op.ms for op in group),
            sum(op.ms for op in group) / total if total else 0.0,
            sum(op.flops for op in group),
        )
        for name, group in members.items()
    ]


def profile_tables(ops: Sequence[OpTime]) -> str:
    """Markdown: time by block in the order of the program, then by kind, the longest first."""
    by_block = group_by(ops, lambda op: op.block)
    by_kind = sorted(group_by(ops, lambda op: op.kind), key=lambda group: -group.ms)
    return "\n".join([*_table("Block", by_block), "", *_table("Kind", by_kind), ""])


def _table(title: str, groups: Iterable[Group]) -> list[str]:
    rows = [
        (
            g.label,
            str(g.ops),
            f"{g.ms:.2f}",
            f"{100 * g.share:.1f}",
            f"{g.flops / 1e9:.3f}",
            f"{g.gflops_per_s:.1f}",
        )
        for g in groups
    ]
    return markdown_table((title, "Ops", "ms", "Share %", "GFLOP", "GFLOP/s"), rows)
