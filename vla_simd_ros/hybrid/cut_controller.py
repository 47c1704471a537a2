"""Moving the cut while frames flow: each side's slowdown is measured, and the cost model says what every cut
would have cost.

Only blocks of the dynamic zone change sides. Two rules choose a cut after every frame: one follows, it has
the cut that is best under the slowdowns of now; one holds, it has the cut that would have been best over the
last few hundred frames as a whole. Both are charged with what their cuts cost under the slowdowns measured
then, and the cut is that of the rule which was charged less. So loads that last longer than a frame or two
are followed at once, and where following comes too late the cut that is best on the whole stays.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.hybrid.slowdown import Slowdown
from vla_simd_ros.hybrid.split_search import predict
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts

_Intervals = npt.NDArray[np.float64]

_OF_NOISE = 0.6
"""What a move must save is at least this part of the noise of one frame's time: half and more of a move's
gain would be chance else."""
_OF_MARGIN = 0.15
"""The part of a small margin that the held cut must save to move: it goes by a mean, which has little noise.
Of a large margin more, up to all: who sets one wants a cut that stays."""
_TRUSTED_FRAMES = 5
"""The costs count as so many frames without any load."""
_HEAD_START, _LEAD = 0.1, 0.025
"""What following has to make up for at first, and by how much either must be ahead to take over, in
intervals: a single slow frame is not followed before following has been of use."""
_MOST_DELAY = 16


@dataclass(frozen=True)
class ControllerSettings:
    """How readily the cut moves.

    first, last: the fewest and the most blocks of the prefix: the dynamic zone lies between
    margin: the share of the interval that following a change must be predicted to save; more where stage
        times are noisy, less for the held cut
    memory: frames over which what the rules and the held cut cost is added up
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
        plain = [predict(costs, k) for k in range(settings.first, settings.last + 1)]
        for split in plain:
            if math.isinf(split.latency_s):
                raise CostError(
                    f"a prefix of {split.blocks} blocks has a block that cannot run where it would be"
                )
        self._plain_s = {
            "prefix": np.array([split.prefix_s for split in plain]),
            "suffix": np.array([split.suffix_s for split in plain]),
        }
        self._transfer_s = np.array([split.transfer_s for split in plain])
        self._slowdown = {"prefix": Slowdown(), "suffix": Slowdown()}
        # From here on cuts are places in the zone, from 0.
        self._followed = deque([blocks - settings.first], maxlen=_MOST_DELAY)
        self._held = blocks - settings.first
        self._mean_s, self._frames = self._intervals(), float(_TRUSTED_FRAMES)
        self._lead = -_HEAD_START  # by how many intervals following was cheaper than holding
        self._follows = False

    def observe(self, state: FrameState) -> int:
        """Take a frame's state in; the blocks of the prefix from the next frame on."""
        self._estimate("prefix", state.prefix_s, state.prefix_load, state.blocks)
        self._estimate("suffix", state.suffix_s, state.suffix_load, state.blocks)
        now_s = self._intervals()
        self._charge(now_s, state.delay)
        self._follow(now_s, state.backlog)
        self._hold(now_s)
        self._follows = self._lead > (-_LEAD if self._follows else _LEAD)
        self.blocks = self._settings.first + (self._followed[-1] if self._follows else self._held)
        return self.blocks

    def interval_s(self, blocks: int) -> float:
        """The predicted interval with a prefix of ``blocks`` blocks under the slowdowns measured last."""
        return float(self._intervals()[blocks - self._settings.first])

    def _charge(self, now_s: _Intervals, delay: int) -> None:
        """What the frame would have cost with the cuts that either rule had when it began."""
        followed = self._followed[max(-1 - delay, -len(self._followed))]
        gain_s = float(now_s[self._held] - now_s[followed])
        self._lead = self._lead * self._kept + (gain_s / float(now_s.min()) if gain_s else 0.0)

    def _follow(self, now_s: _Intervals, backlog: int) -> None:
        here, best = self._followed[-1], int(now_s.argmin())
        noise = max(side.noise for side in self._slowdown.values())
        # Frames that were dropped before the second stage are its slowness seen before its time is known.
        eager = backlog > 0 and best > here
        margin = 0.0 if eager else max(self._settings.margin, _OF_NOISE * noise)
        self._followed.append(best if now_s[here] - now_s[best] > margin * now_s[here] else here)

    def _hold(self, now_s: _Intervals) -> None:
        kept, frames = self._kept, self._frames
        self._frames = kept * frames + 1.0
        self._mean_s = (kept * frames * self._mean_s + now_s) / self._frames
        mean_s, best = self._mean_s, int(self._mean_s.argmin())
        margin = self._settings.margin * max(_OF_MARGIN, self._settings.margin)
        if mean_s[self._held] - mean_s[best] > margin * mean_s[self._held]:
            self._held = best

    @property
    def _kept(self) -> float:
        """What a frame's weight is multiplied with, one frame later."""
        return 1.0 - 1.0 / self._settings.memory

    def _intervals(self) -> _Intervals:
        """Of every cut of the zone, under the slowdowns of now."""
        prefix, suffix = self._slowdown["prefix"].value, self._slowdown["suffix"].value
        return np.maximum(
            self._plain_s["prefix"] * prefix, self._transfer_s + self._plain_s["suffix"] * suffix
        )

    def _estimate(self, side: str, measured_s: float, load: float, blocks: int) -> None:
        """A side's slowdown from what a frame took there; from the load where the frame had nothing there."""
        place = blocks - self._settings.first
        there = 0 <= place < len(self._transfer_s)
        plain = float(self._plain_s[side][place]) if there else 0.0
        if plain > 0.0 and math.isfinite(measured_s) and measured_s > 0.0:
            self._slowdown[side].take(measured_s / plain)
        elif 0.0 <= load < 1.0:
            self._slowdown[side].take(1.0 / (1.0 - load))
