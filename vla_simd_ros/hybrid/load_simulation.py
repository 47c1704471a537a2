"""The controller against a load trace: what it comes to beside fixed cuts and one who knows the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.hybrid.cut_controller import ControllerSettings, CutController, FrameState
from vla_simd_ros.hybrid.load_traces import LoadTrace
from vla_simd_ros.hybrid.split_search import predict
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts


@dataclass(frozen=True, eq=False)
class SimulatedLoad:
    """Mean seconds from frame to frame: of the controller, of every fixed cut by its blocks, and of the best
    cut for each frame; ``cuts`` int [frames] are the controller's."""

    controlled_s: float
    fixed_s: dict[int, float]
    oracle_s: float
    cuts: npt.NDArray[np.int64]

    @property
    def best_fixed(self) -> int:
        """The blocks of the fixed cut that is best for the whole trace."""
        return min(self.fixed_s, key=self.fixed_s.__getitem__)

    @property
    def over_oracle(self) -> float:
        """By what share the controller's interval is longer than with the best cut for each frame."""
        return self.controlled_s / self.oracle_s - 1.0

    @property
    def over_fixed(self) -> float:
        """The same, against the best fixed cut; negative where it is shorter."""
        return self.controlled_s / self.fixed_s[self.best_fixed] - 1.0

    @property
    def moves(self) -> int:
        """How often the cut moved."""
        return int(np.count_nonzero(np.diff(self.cuts)))


def simulate_load(
    costs: StageCosts,
    settings: ControllerSettings,
    blocks: int,
    loads: LoadTrace,
    noise: Sequence[float] = (),
    delay: int = 0,
) -> SimulatedLoad:
    """Run the controller over ``loads`` [frames, 2]: the share of either side's time that others take while
    that frame is computed, 0 to less than 1. Stage times vary by the factors ``noise``, used in turn. The cut
    of a frame is chosen when all but ``delay`` of those before it are known, and of these the prefixes.

    Raises CostError for loads that cannot be.
    """
    if loads.ndim != 2 or loads.shape[1] != 2 or not len(loads):
        raise CostError(f"the loads are {list(loads.shape)}, expected [frames, 2]")
    if not ((loads >= 0.0) & (loads < 1.0)).all():
        raise CostError("a load is not within 0 to less than 1")
    if delay < 0:
        raise CostError(f"the delay is {delay} frames, expected 0 or more")
    cuts = range(settings.first, settings.last + 1)
    prefix_s, suffix_s, transfer_s = _stages(costs, cuts, loads)
    factors = np.resize(np.asarray(noise or (1.0,), np.float64), (len(loads), 2))
    controller = CutController(costs, settings, blocks)
    chosen = [controller.blocks] * (1 + delay)

    def end_prefix(frame: int) -> None:
        if frame < len(loads):
            took_s = prefix_s[frame, chosen[frame] - settings.first] * factors[frame, 0]
            controller.prefix_ended(chosen[frame], took_s, loads[frame, 0])

    for frame in range(delay):
        end_prefix(frame)
    for frame, factor in enumerate(factors):
        at = chosen[frame] - settings.first
        measured = prefix_s[frame, at] * factor[0], suffix_s[frame, at] * factor[1]
        state = FrameState(
            chosen[frame], *measured, loads[frame, 0], loads[frame, 1], delay=min(frame, delay)
        )
        controller.observe(state)
        if delay:
            end_prefix(frame + delay)
        chosen.append(controller.blocks)
    cuts_taken = np.array(chosen[: len(loads)])
    intervals = np.maximum(prefix_s, transfer_s + suffix_s)
    return SimulatedLoad(
        controlled_s=float(intervals[np.arange(len(loads)), cuts_taken - settings.first].mean()),
        fixed_s=dict(zip(cuts, map(float, intervals.mean(axis=0)), strict=True)),
        oracle_s=float(intervals.min(axis=1).mean()),
        cuts=cuts_taken,
    )


def _stages(costs: StageCosts, cuts: range, loads: LoadTrace) -> tuple[LoadTrace, LoadTrace, LoadTrace]:
    """Seconds of prefix and suffix [frames, cuts], and of the transfer [cuts]."""
    plain = [predict(costs, blocks) for blocks in cuts]
    left = 1.0 - loads
    prefix_s, suffix_s = (
        np.array([getattr(split, f"{side}_s") for split in plain]) / left[:, [column]]
        for column, side in enumerate(("prefix", "suffix"))
    )
    return prefix_s, suffix_s, np.array([split.transfer_s for split in plain])
