"""Where the time of a query goes: operation by operation, then by block and by kind of operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vla_simd_ros.benchmarks.roofline import Roofline
from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.benchmarks.work import NO_WORK, Work
from vla_simd_ros.graph.int8 import INT8


@dataclass(frozen=True)
class OpTime:
    """One operation of a query: what it is, what computes it, its work, and its time.

    ``algorithm`` names how a convolution is computed, and is the kind of any other operation; ``shape`` is
    written as the operation's sizes; ``rows`` and ``cols`` are those of its result; ``ms`` is its shortest
    time over the profiled queries. It belongs to the program "query" or "step", which a query runs ``runs``
    times.
    """

    name: str
    kind: str
    algorithm: str
    precision: str
    block: str
    shape: str
    rows: int
    cols: int
    work: Work
    ms: float
    program: str = "query"
    runs: int = 1


@dataclass(frozen=True)
class Group:
    """Operations taken together, as often as a query runs them; ``share`` is their part of the time of all,
    ``bound_ms`` the sum of their shortest times by the roofline, None where some compute in int8, whose peak
    is not measured."""

    label: str
    ops: int
    how: str
    ms: float
    share: float
    work: Work
    bound_ms: float | None

    @property
    def gflops_per_s(self) -> float:
        """Rate in GFLOP/s of the direct method."""
        return self.work.flops / self.ms / 1e6 if self.ms else 0.0

    @property
    def roofline_share(self) -> float | None:
        """Part of the roofline reached."""
        return self.bound_ms / self.ms if self.ms and self.bound_ms is not None else None


def group_by(ops: Sequence[OpTime], label: Callable[[OpTime], str], roofline: Roofline) -> list[Group]:
    """Operations summed by label, in order of first appearance."""
    total = sum(op.ms * op.runs for op in ops)
    members: dict[str, list[OpTime]] = {}
    for op in ops:
        members.setdefault(label(op), []).append(op)
    return [_group(name, group, total, roofline) for name, group in members.items()]


def _group(name: str, ops: Sequence[OpTime], total: float, roofline: Roofline) -> Group:
    ms = sum(op.ms * op.runs for op in ops)
    int8 = any(op.precision == INT8 for op in ops)
    return Group(
        name,
        len(ops),
        _how(ops),
        ms,
        ms / total if total else 0.0,
        sum((op.work * op.runs for op in ops), NO_WORK),
        None if int8 else sum(op.runs * roofline.in_query_ms(op.work) for op in ops),
    )


def _how(ops: Sequence[OpTime]) -> str:
    """Algorithms of the convolutions and products in int8, with their numbers."""
    counts = Counter(op.algorithm for op in ops if op.kind == "conv2d" and op.precision != INT8)
    counts.update(INT8 for op in ops if op.precision == INT8)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def profile_tables(ops: Sequence[OpTime], roofline: Roofline) -> str:
    """Markdown: time by program where there are several, by block in the order of the programs, then by
    kind, the longest first."""
    by_program = group_by(ops, _program, roofline)
    by_block = group_by(ops, lambda op: op.block if op.runs == 1 else f"{_program(op)}: {op.block}", roofline)
    by_kind = sorted(group_by(ops, lambda op: op.kind, roofline), key=lambda group: -group.ms)
    tables = {"Program": by_program} if len(by_program) > 1 else {}
    tables |= {"Block": by_block, "Kind": by_kind}
    return "\n".join(line for title, groups in tables.items() for line in [*_table(title, groups), ""])


def _program(op: OpTime) -> str:
    return op.program if op.runs == 1 else f"{op.program} x {op.runs}"


def _table(title: str, groups: Iterable[Group]) -> list[str]:
    header = (
        title,
        "Computed by",
        "Ops",
        "ms",
        "Share %",
        "GFLOP",
        "MB",
        "FLOP/B",
        "GFLOP/s",
        "Roofline ms",
        "% of roofline",
    )
    return markdown_table(header, (_row(group) for group in groups), text_columns=2)


def _row(group: Group) -> tuple[str, ...]:
    share = group.roofline_share
    return (
        group.label,
        group.how,
        str(group.ops),
        f"{group.ms:.2f}",
        f"{100 * group.share:.1f}",
        f"{group.work.flops / 1e9:.3f}",
        f"{group.work.nbytes / 1e6:.1f}",
        f"{group.work.intensity:.1f}",
        f"{group.gflops_per_s:.1f}",
        "n/a" if group.bound_ms is None else f"{group.bound_ms:.2f}",
        "n/a" if share is None else f"{100 * share:.1f}",
    )
