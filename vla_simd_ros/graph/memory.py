"""Planning one block of memory: which bytes of an arena hold which buffer, and when they may be reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vla_simd_ros.graph.branches import Branch

ALIGNMENT = 64
"""Bytes of a cache line; every buffer starts at one."""


@dataclass(frozen=True)
class Buffer:
    """Memory that is in use from the ``first`` to the ``last`` of the positions of one program.

    ``program`` tells programs apart: they run one after the other, so buffers of different programs never
    meet, unless they are ``persistent``: those are in use always, and their positions do not matter.
    ``branch`` is the one that uses the buffer, where only one does: branches of a section may run at the same
    time, so that buffers of different ones meet whatever their positions.
    """

    name: str
    nbytes: int
    first: int
    last: int
    program: int
    persistent: bool = False
    branch: Branch | None = None

    def __post_init__(self) -> None:
        if self.nbytes < 1 or self.last < self.first:
            raise ValueError(
                f"buffer '{self.name}': got {self.nbytes} bytes in use from {self.first} to {self.last}, "
                "expected at least one byte and an end not before the beginning"
            )

    def meets(self, other: Buffer) -> bool:
        """Whether both are in use at some moment."""
        if self.persistent or other.persistent:
            return True
        if self.program != other.program:
            return False
        if self.branch and other.branch and self.branch != other.branch and self.branch[0] == other.branch[0]:
            return True
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class ArenaPlan:
    """``offsets`` in bytes, one for each buffer; persistent ones lie below ``persistent_bytes``."""

    offsets: tuple[int, ...]
    nbytes: int
    persistent_bytes: int


def plan_arena(buffers: Sequence[Buffer]) -> ArenaPlan:
    """Offsets such that buffers in use at the same time share no byte.

    Persistent buffers come first, one after the other. Of the others the largest is placed first, each at the
    lowest offset that is free as long as it is needed.
    """
    offsets = [0] * len(buffers)
    base = 0
    for index, buffer in enumerate(buffers):
        if buffer.persistent:
            offsets[index] = base
            base += _aligned(buffer.nbytes)
    end = base
    placed: list[int] = []
    temporary = [index for index, buffer in enumerate(buffers) if not buffer.persistent]
    for index in sorted(temporary, key=lambda i: (-buffers[i].nbytes, buffers[i].first)):
        taken = sorted(
            (offsets[other], offsets[other] + buffers[other].nbytes)
            for other in placed
            if buffers[other].meets(buffers[index])
        )
        offsets[index] = _lowest_gap(taken, buffers[index].nbytes, base)
        end = max(end, offsets[index] + _aligned(buffers[index].nbytes))
        placed.append(index)
    return ArenaPlan(tuple(offsets), end, base)


def _lowest_gap(taken: Sequence[tuple[int, int]], nbytes: int, base: int) -> int:
    offset = base
    for begin, end in taken:
        if offset + nbytes <= begin:
            break
        offset = max(offset, _aligned(end))
    return offset


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
