"""The selection of a register tile for a target (Algorithm 1 of vla.simd).

A tile of ``rows`` x ``cols`` outputs stays in vector registers while it is summed over depth. Of the tiles
that the target's registers, latency and loads allow, the one with the most multiply-adds per load is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from vla_simd_ros.tuning.target import Target, TargetError


@dataclass(frozen=True, order=True)
class Tile:
    """A register tile: ``rows`` (m_r) by ``cols`` (n_r) outputs."""

    rows: int
    cols: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.cols}"

    def vectors(self, target: Target) -> int:
        """Registers for a row of it (n_v)."""
        return self.cols // target.lanes

    def registers(self, target: Target) -> int:
        """Vector registers that it needs: sums, weights, and the left operand."""
        vectors = self.vectors(target)
        operands = 1 if target.operand_mode == "broadcast" else self.rows
        return self.rows * vectors + vectors + operands

    def loads(self, target: Target) -> Fraction:
        """Vector loads for each step in depth, on average (Lambda)."""
        divisor = 1 if target.operand_mode == "broadcast" else target.lanes
        return self.vectors(target) + Fraction(self.rows, divisor)

    def score(self, target: Target) -> Fraction:
        """Multiply-adds per load where the left operand is broadcast (phi); a heuristic elsewhere."""
        return Fraction(self.rows * self.cols, self.cols + target.lanes * self.rows)


def violation(tile: Tile, target: Target) -> str | None:
    """The first of the constraints (2) to (4) that the tile violates, in words; None where it is allowed."""
    sums = tile.rows * tile.vectors(target)
    registers = tile.registers(target)
    if registers > target.registers:
        return f"(2) registers: {registers} of {target.registers}"
    in_flight = target.fmas_per_cycle * target.fma_latency
    if sums < in_flight:
        return f"(3) latency: {sums} sums, {in_flight} multiply-adds in flight"
    loads = tile.loads(target)
    if sums * target.loads_per_cycle < loads * target.fmas_per_cycle:
        rates = f"{target.fmas_per_cycle} and {target.loads_per_cycle} per cycle"
        return f"(4) loads: {sums} multiply-adds to {float(loads):g} loads, at {rates}"
    return None


Spills = Callable[[Tile], Sequence[str]]
"""What is wrong with the compiled inner loop of a tile; empty where it keeps to the registers."""


@dataclass(frozen=True)
class Candidate:
    """A tile that was looked at; ``reason`` says why it is not feasible, and is empty where it is."""

    tile: Tile
    reason: str = ""


@dataclass(frozen=True)
class Selection:
    """What Algorithm 1 looked at, in its order, and what it chose: None where weights stay unpacked."""

    target: Target
    divisor: int
    candidates: tuple[Candidate, ...]
    choice: Tile | None


def common_divisor(widths: Sequence[int]) -> int:
    """Greatest common divisor of the packed layers' output widths (g). Raises TargetError without any."""
    if not widths or min(widths) < 1:
        raise TargetError(f"output widths of packed layers are {list(widths)}, expected some, from 1")
    return math.gcd(*widths)


def widths_of_tiles(target: Target, divisor: int) -> list[int]:
    """The widths n_r that are looked at: whole vectors that divide every layer, ascending."""
    return [cols for cols in range(target.lanes, divisor + 1, target.lanes) if divisor % cols == 0]


def select_tile(target: Target, widths: Sequence[int], spills: Spills) -> Selection:
    """Algorithm 1: the tile for layers of these output widths."""
    divisor = common_divisor(widths)
    candidates: list[Candidate] = []
    best: Tile | None = None
    for cols in widths_of_tiles(target, divisor):
        for rows in range(target.registers, 0, -1):
            tile = Tile(rows, cols)
            reason = violation(tile, target) or _spills(spills(tile))
            candidates.append(Candidate(tile, reason))
            if reason:
                continue
            if best is None or tile.score(target) > best.score(target):
                best = tile
            break  # the score grows with the rows: this is the best of its width
    return Selection(target, divisor, tuple(candidates), best)


def _spills(faults: Sequence[str]) -> str:
    return f"spills: {', '.join(faults)}" if faults else ""


def feasible_tiles(target: Target, divisor: int, spills: Spills) -> list[Tile]:
    """Every tile that is allowed and does not spill, also those that Algorithm 1 has no need to look at."""
    return [
        tile
        for cols in widths_of_tiles(target, divisor)
        for rows in range(1, target.registers + 1)
        if not violation(tile := Tile(rows, cols), target) and not spills(tile)
    ]
