"""Where to cut a policy between two executors, so that frames follow each other as fast as they can.

Consecutive frames overlap: while the second executor works on one, the first works on the next. With T_G, T_X
and T_C the times of the prefix, the transfer and the suffix, a frame follows the last one after
max(T_G, T_X + T_C), and takes T_G + T_X + T_C itself (equations 12 and 13 of "Efficient Block-Layer Parallel
Inference for Vision-Language-Action on Hybrid Architectures").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts


@dataclass(frozen=True)
class Resources:
    """What either side may use.

    prefix_memory, suffix_memory: bytes; None: no limit
    suffix_threads: None: as many as were measured
    prefix_load, suffix_load: shares of either side's time that others take, 0 to less than 1
    first, last: the fewest and the most blocks of the prefix; None: no limit
    """

    prefix_memory: int | None = None
    suffix_memory: int | None = None
    suffix_threads: float | None = None
    prefix_load: float = 0.0
    suffix_load: float = 0.0
    first: int | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        for name in ("prefix_load", "suffix_load"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0:
                raise CostError(f"{name} is {value}, expected 0 or more and less than 1")


@dataclass(frozen=True)
class Split:
    """The prediction for a prefix of ``blocks`` blocks; seconds and bytes. ``obstacles`` say in words why it
    cannot be, if so."""

    blocks: int
    after: str
    prefix_s: float
    transfer_s: float
    suffix_s: float
    prefix_bytes: int
    suffix_bytes: int
    boundary_bytes: int = 0
    obstacles: tuple[str, ...] = ()

    @property
    def interval_s(self) -> float:
        """Time from one frame's result to the next one's when frames overlap."""
        return max(self.prefix_s, self.transfer_s + self.suffix_s)

    @property
    def latency_s(self) -> float:
        """Time of one frame through both sides, which is also the interval when frames do not overlap."""
        return self.prefix_s + self.transfer_s + self.suffix_s


def predict(costs: StageCosts, blocks: int, resources: Resources | None = None) -> Split:
    """The prediction for the first ``blocks`` blocks on the first executor, 0 to all of them."""
    allowed = resources or Resources()
    if not 0 <= blocks <= len(costs.blocks):
        raise CostError(f"a prefix of {blocks} blocks, expected 0 to {len(costs.blocks)}")
    before, behind = costs.blocks[:blocks], costs.blocks[blocks:]
    threads = costs.suffix_threads if allowed.suffix_threads is None else allowed.suffix_threads
    slowdown = costs.suffix_slowdown(threads) / (1.0 - allowed.suffix_load)
    split = Split(
        blocks=blocks,
        after=before[-1].name if before else "",
        prefix_s=sum(block.prefix_s for block in before) / (1.0 - allowed.prefix_load),
        transfer_s=costs.transfer(blocks),
        suffix_s=sum(block.suffix_s for block in behind) * slowdown,
        prefix_bytes=_prefix_bytes(costs, blocks),
        suffix_bytes=_suffix_bytes(costs, blocks),
        boundary_bytes=costs.crossing(blocks),
    )
    return Split(**{**split.__dict__, "obstacles": tuple(_obstacles(split, allowed))})


def _prefix_bytes(costs: StageCosts, blocks: int) -> int:
    before = costs.blocks[:blocks]
    if not before:
        return 0
    return before[-1].prefix_held_bytes or (
        sum(block.prefix_bytes for block in before) + costs.prefix_base_bytes
    )


def _suffix_bytes(costs: StageCosts, blocks: int) -> int:
    before, behind = costs.blocks[:blocks], costs.blocks[blocks:]
    if not behind:
        return 0
    held = before[-1].suffix_held_bytes if before else costs.whole_bytes
    return held or sum(block.suffix_bytes for block in behind) + costs.suffix_base_bytes


def splits(costs: StageCosts, resources: Resources | None = None) -> list[Split]:
    """The predictions for every number of blocks, possible or not."""
    return [predict(costs, blocks, resources) for blocks in range(len(costs.blocks) + 1)]


def best_split(candidates: Sequence[Split]) -> Split:
    """The possible one with the shortest interval; of equal ones the shortest latency, then the fewest blocks
    on the first executor, which is the scarcer one. Raises CostError where none is possible."""
    possible = [split for split in candidates if not split.obstacles]
    if not possible:
        reasons = dict.fromkeys(reason for split in candidates for reason in split.obstacles)
        raise CostError(f"no split is possible: {'; '.join(reasons)}")
    return min(possible, key=lambda split: (split.interval_s, split.latency_s, split.blocks))


def _obstacles(split: Split, allowed: Resources) -> list[str]:
    found = []
    for side in ("prefix", "suffix"):
        if math.isinf(getattr(split, f"{side}_s")):
            found.append(f"a block cannot run on the {side}'s side")
        limit, needed = getattr(allowed, f"{side}_memory"), getattr(split, f"{side}_bytes")
        if limit is not None and needed > limit:
            found.append(f"the {side}'s memory is limited to {limit / 2**20:.1f} MiB")
    if allowed.first is not None and split.blocks < allowed.first:
        found.append(f"the prefix has at least {allowed.first} blocks")
    if allowed.last is not None and split.blocks > allowed.last:
        found.append(f"the prefix has at most {allowed.last} blocks")
    return found
