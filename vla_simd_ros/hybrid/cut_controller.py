"""Moving the cut while frames flow: each side's slowdown is estimated, and the cost model says where to cut.

Only blocks of the dynamic zone change sides. A cut is left for another one only where that is predicted to
shorten the interval by more than a margin, for several frames in a row, and not right after the last change:
so that noise does not make it wander back and forth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vla_simd_ros.hybrid.split_search import predict
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts


@dataclass(frozen=True)
class ControllerSettings:
    """How readily the cut moves.

    first, last: the fewest and the most blocks of the prefix: the dynamic zone lies between
    margin: the share of the interval that a move must be predicted to save
    patience: frames in a row that must agree before the cut moves
    rest: frames after a move in which it stays
    smoothing: weight of the newest measurement in the estimate of a slowdown, more than 0, at most 1
    """

    first: int
    last: int
    margin: float = 0.04
    patience: int = 2
    rest: int = 3
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise CostError(
                f"the dynamic zone is {self.first} to {self.last} blocks, expected 0 or more, in order"
            )
        if not 0.0 <= self.margin < 1.0:
            raise CostError(f"margin is {self.margin}, expected 0 or more and less than 1")
        if self.patience < 1 or self.rest < 0:
            raise CostError(
                f"patience is {self.patience} and rest {self.rest}, expected 1 or more and 0 or more"
            )
        if not 0.0 < self.smoothing <= 1.0:
            raise CostError(f"smoothing is {self.smoothing}, expected more than 0 and at most 1")


@dataclass(frozen=True)
class FrameState:
    """What is known after a frame.

    blocks: blocks of the prefix when it was computed
    prefix_s, suffix_s: measured seconds of its stages, without the transfer
    prefix_load, suffix_load: shares of either side that others take now, 0 to 1; NaN where not known
    backlog: frames dropped since the last state because the second stage was busy
    """

    blocks: int
    prefix_s: float
    suffix_s: float
    prefix_load: float = math.nan
    suffix_load: float = math.nan
    backlog: int = 0


class CutController:
    """Chooses the number of blocks of the prefix, from a state after every frame."""

    def __init__(self, costs: StageCosts, settings: ControllerSettings, blocks: int) -> None:
        """``blocks`` is where the cut is at first. Raises CostError for a cut outside the dynamic zone."""
        if not settings.first <= blocks <= settings.last <= len(costs.blocks):
            raise CostError(
                f"the cut is after {blocks} blocks of {len(costs.blocks)}, expected "
                f"{settings.first} to {settings.last}"
            )
        self.blocks = blocks
        self._settings = settings
        self._plain = {k: predict(costs, k) for k in range(settings.first, settings.last + 1)}
        for k, split in self._plain.items():
            if math.isinf(split.latency_s):
                raise CostError(f"a prefix of {k} blocks has a block that cannot run where it would be")
        self._slowdown = {"prefix": 1.0, "suffix": 1.0}
        self._agreed = 0
        self._rested = settings.rest

    def observe(self, state: FrameState) -> int:
        """Take a frame's state in; the blocks of the prefix from the next frame on."""
        self._estimate("prefix", state.prefix_s, state.prefix_load, state.blocks)
        self._estimate("suffix", state.suffix_s, state.suffix_load, state.blocks)
        self._rested += 1
        best = min(self._plain, key=self._rank)
        here, there = self.interval_s(self.blocks), self.interval_s(best)
        # Frames that were dropped before the second stage are its slowness seen before its time is known.
        eager = state.backlog > 0 and best > self.blocks
        worth = here - there > (0.0 if eager else self._settings.margin) * here
        self._agreed = self._agreed + 1 if worth else 0
        if self._agreed >= self._settings.patience and self._rested > self._settings.rest:
            self.blocks, self._agreed, self._rested = best, 0, 0
        return self.blocks

    def interval_s(self, blocks: int) -> float:
        """The predicted interval with a prefix of ``blocks`` blocks under the slowdowns estimated now."""
        split = self._plain[blocks]
        suffix = split.transfer_s + split.suffix_s * self._slowdown["suffix"]
        return max(split.prefix_s * self._slowdown["prefix"], suffix)

    def _rank(self, blocks: int) -> tuple[float, int]:
        return self.interval_s(blocks), abs(blocks - self.blocks)

    def _estimate(self, side: str, measured_s: float, load: float, blocks: int) -> None:
        """A side's slowdown from what a frame took there; from the load where the frame had nothing there."""
        plain = getattr(self._plain[blocks], f"{side}_s") if blocks in self._plain else 0.0
        if plain > 0.0 and math.isfinite(measured_s):
            found = measured_s / plain
        elif 0.0 <= load < 1.0:
            found = 1.0 / (1.0 - load)
        else:
            return
        old, weight = self._slowdown[side], self._settings.smoothing
        self._slowdown[side] = old + weight * (found - old)
