"""Moving the cut while frames flow: each side's slowdown is measured, and the cost model says what every cut
would have cost.

Only blocks of the dynamic zone change sides. Three rules choose a cut after every frame, each by a forecast
of its own: the next frame will be as this one (follow), as those that came after frames like the last ones
(foresee), or as frames are in the mean (hold). Each is charged with what its cuts would have cost under the
slowdowns measured then, and the cut is that of the rule which was charged least. So loads that last longer
than a frame or two are followed at once, those that come back are met in time, and where neither can be, the
cut that is best on the whole stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.hybrid.cut_rule import CutRule, Intervals
from vla_simd_ros.hybrid.split_search import Split, predict
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts
from vla_simd_ros.hybrid.stage_forecast import StageForecast

_HELD_MARGIN = 0.15
"""The part of a small margin that the held cut must save to move: it goes by a mean, which has little noise.
Of a large margin more, up to all: who sets one wants a cut that stays."""
_TRUSTED_FRAMES = 5
"""The costs count as so many frames without any load."""
_MOST_REMEMBERED = 2000
"""Frames that are looked back at one by one, at most."""
_HEAD_START, _LEAD = 0.1, 0.025
"""By how much holding is ahead at first, and by how much a rule must be ahead to take over, in intervals: a
single slow frame moves nothing before moving has been of use."""


@dataclass(frozen=True)
class ControllerSettings:
    """How readily the cut moves.

    first, last: the fewest and the most blocks of the prefix: the dynamic zone lies between
    margin: the share of the interval that a move must be expected to save; less for the held cut
    memory: frames that are looked back at, and over which what the rules and the held cut cost is added up
    """

    first: int
    last: int
    margin: float = 0.02
    memory: int = 500

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise CostError(
                f"the dynamic zone is {self.first} to {self.last} blocks, expected 0 or more, in order"
            )
        if not 0.0 <= self.margin < 1.0:
            raise CostError(f"margin is {self.margin}, expected 0 or more and less than 1")
        if self.memory < 1:
            raise CostError(f"memory is {self.memory} frames, expected 1 or more")


@dataclass(frozen=True)
class FrameState:
    """What is known after a frame.

    blocks: blocks of the prefix when it was computed
    prefix_s, suffix_s: measured seconds of its stages, without the transfer
    prefix_load, suffix_load: shares of either side that others take now, 0 to 1; NaN where not known
    backlog: frames dropped since the last state because the second stage was busy
    delay: states that came after its cut was chosen, before this one
    """

    blocks: int
    prefix_s: float
    suffix_s: float
    prefix_load: float = math.nan
    suffix_load: float = math.nan
    backlog: int = 0
    delay: int = 0


class CutController:
    """Chooses the number of blocks of the prefix, from a state after every frame.

    Attributes:
        blocks: where the cut is from the next frame on.
    """

    def __init__(self, costs: StageCosts, settings: ControllerSettings, blocks: int) -> None:
        """``blocks`` is where the cut is at first. Raises CostError for a cut outside the dynamic zone."""
        if not settings.first <= blocks <= settings.last <= len(costs.blocks):
            raise CostError(
                f"the cut is after {blocks} blocks of {len(costs.blocks)}, expected "
                f"{settings.first} to {settings.last}"
            )
        self.blocks = blocks
        self._settings = settings
        plain = _without_load(costs, settings)
        remembered = min(settings.memory, _MOST_REMEMBERED)
        self._prefix = StageForecast(np.array([split.prefix_s for split in plain]), remembered)
        self._suffix = StageForecast(np.array([split.suffix_s for split in plain]), remembered)
        self._transfer_s = np.array([split.transfer_s for split in plain])
        self._mean_s, self._frames = self._now(), float(_TRUSTED_FRAMES)
        start, margin = blocks - settings.first, settings.margin
        self._hold = CutRule(start, margin * max(_HELD_MARGIN, margin))
        self._follow = CutRule(start, margin, charged=_HEAD_START)
        self._foresee = CutRule(start, margin, charged=_HEAD_START)
        self._leading = self._hold
        self._tried = False  # whether anything but holding has been
        self._delay, self._behind = 0, False  # of the last state
        self._begun = False  # whether there has been one
        self._prefix_ahead = False  # whether prefixes are told of when they end

    def prefix_ended(self, blocks: int, prefix_s: float, load: float = math.nan) -> None:
        """Take in what a prefix of ``blocks`` took, and the first side's load, before the frame's state is
        known: the next frame begins about now. Whoever tells of one tells of all."""
        self._prefix_ahead = True
        self._prefix.take(blocks - self._settings.first, prefix_s, load)
        if not self._begun:
            return
        self._follow.revise(self._now(), self._behind)
        self._foresee.revise(self._expected(), self._behind)
        self.blocks = self._settings.first + self._leading.cut

    def observe(self, state: FrameState) -> int:
        """Take a frame's state in; the blocks of the prefix from the next frame on."""
        place = state.blocks - self._settings.first
        if not self._prefix_ahead:
            self._prefix.take(place, state.prefix_s, state.prefix_load)
        self._suffix.take(place, state.suffix_s, state.suffix_load)
        # Frames that were dropped before the second stage are its slowness seen before its time is known.
        self._delay, self._behind, self._begun = state.delay, state.backlog > 0, True
        now_s = self._now()
        self._add_to_mean(now_s)
        rules = (self._hold, self._follow, self._foresee)
        for rule in rules:
            # Following is first tried soon: as if its choices took effect at once.
            delay = state.delay if self._tried or rule is not self._follow else 0
            rule.charge(now_s, delay, self._kept)
        self._hold.choose(self._mean_s)
        self._follow.choose(now_s, self._behind)
        self._foresee.choose(self._expected(), self._behind)
        least = min(rules, key=lambda rule: rule.charged)
        if self._leading.charged - least.charged > _LEAD:
            self._leading, self._tried = least, True
        self.blocks = self._settings.first + self._leading.cut
        return self.blocks

    def interval_s(self, blocks: int) -> float:
        """The predicted interval with a prefix of ``blocks`` blocks under the slowdowns measured last."""
        return float(self._now()[blocks - self._settings.first])

    def _now(self) -> Intervals:
        """Under the slowdowns of now."""
        return np.maximum(self._prefix.now_s(), self._transfer_s + self._suffix.now_s())

    def _expected(self) -> Intervals:
        """Of the next frame: the mean over what either stage may take, each by itself."""
        ahead = 1 + self._delay
        prefix_s = self._prefix.expected_s(1 if self._prefix_ahead else ahead)
        suffix_s = self._suffix.expected_s(ahead)
        possible_s = np.maximum(prefix_s[:, None], self._transfer_s + suffix_s)
        return np.asarray(possible_s.mean(axis=(0, 1)))

    def _add_to_mean(self, now_s: Intervals) -> None:
        kept, frames = self._kept, self._frames
        self._frames = kept * frames + 1.0
        self._mean_s = (kept * frames * self._mean_s + now_s) / self._frames

    @property
    def _kept(self) -> float:
        """What a frame's weight is multiplied with, one frame later."""
        return 1.0 - 1.0 / self._settings.memory


def _without_load(costs: StageCosts, settings: ControllerSettings) -> list[Split]:
    """The predictions of all cuts of the zone, which all must be possible."""
    plain = [predict(costs, blocks) for blocks in range(settings.first, settings.last + 1)]
    for split in plain:
        if math.isinf(split.latency_s):
            raise CostError(
                f"a prefix of {split.blocks} blocks has a block that cannot run where it would be"
            )
    return plain
