"""The controller against a load trace: what it comes to beside fixed cuts and one who knows the trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.hybrid.cut_controller import ControllerSettings, CutController, FrameState
from vla_simd_ros.hybrid.split_search import Resources, Split, predict
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts

Loads = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SimulatedLoad:
    """Mean seconds from frame to frame: of the controller, of every fixed cut by its blocks, and of the best
    cut for each frame; ``cuts`` int [frames] are the controller's."""

    controlled_s: float
    fixed_s: dict[int, float]
    oracle_s: float
    cuts: npt.NDArray[np.int64]

    @property
    def moves(self) -> int:
        """How often the cut moved."""
        return int(np.count_nonzero(np.diff(self.cuts)))


def simulate_load(
    costs: StageCosts, settings: ControllerSettings, blocks: int, loads: Loads, noise: Sequence[float] = ()
) -> SimulatedLoad:
    """Run the controller over ``loads`` [frames, 2]: the share of either side's time that others take while
    that frame is computed, 0 to less than 1. Stage times vary by the factors ``noise``, used in turn.

    Raises CostError for loads that cannot be.
    """
    if loads.ndim != 2 or loads.shape[1] != 2 or not len(loads):
        raise CostError(f"the loads are {list(loads.shape)}, expected [frames, 2]")
    if not ((loads >= 0.0) & (loads < 1.0)).all():
        raise CostError("a load is not within 0 to less than 1")
    cuts = range(settings.first, settings.last + 1)
    intervals = np.array([[_split(costs, k, load).interval_s for k in cuts] for load in loads])
    controller = CutController(costs, settings, blocks)
    factors = np.resize(np.asarray(noise or (1.0,), np.float64), (len(loads), 2))
    chosen = []
    for load, factor in zip(loads, factors, strict=True):
        chosen.append(controller.blocks)
        split = _split(costs, controller.blocks, load)
        controller.observe(
            FrameState(controller.blocks, split.prefix_s * factor[0], split.suffix_s * factor[1], *load)
        )
    at = np.array(chosen) - settings.first
    return SimulatedLoad(
        controlled_s=float(intervals[np.arange(len(loads)), at].mean()),
        fixed_s=dict(zip(cuts, map(float, intervals.mean(axis=0)), strict=True)),
        oracle_s=float(intervals.min(axis=1).mean()),
        cuts=np.array(chosen),
    )


def _split(costs: StageCosts, blocks: int, load: Loads) -> Split:
    return predict(costs, blocks, Resources(prefix_load=float(load[0]), suffix_load=float(load[1])))
