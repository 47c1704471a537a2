"""What a hybrid policy is made of: the costs of its blocks, the zone of its cuts, its executors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.partition import cut_points, query_blocks
from vla_simd_ros.hybrid.cut_controller import ControllerSettings, CutController
from vla_simd_ros.hybrid.hybrid_policy import HybridPolicy, WholePolicy
from vla_simd_ros.hybrid.measure_costs import STEPS, measure_costs
from vla_simd_ros.hybrid.placement import Placement, Side, assign_cores
from vla_simd_ros.hybrid.split_executor import SplitExecutor
from vla_simd_ros.hybrid.split_search import Resources, best_split, predict, splits
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts, read_costs
from vla_simd_ros.inference import Policy, make_executor

_INSTRUCTION = "go"
_SEED = 0
_AROUND = 2
"""Blocks on either side of the best cut that the dynamic zone reaches where nothing is said."""

MakeExecutor = Callable[[str, EngineSettings], Executor]


@dataclass(frozen=True)
class HybridOptions:
    """How a checkpoint is shared between two executors.

    checkpoint: its folder
    prefix, suffix: executor, cores and threads of either side
    fallback: that of the whole policy, on the suffix's cores
    reserved: cores that neither side uses
    nice: how far both stand back for others, 0 to 19
    engine: settings of engines on either side, besides threads and affinity
    int8: groups of layers in int8
    costs: a file of ``vla_simd split --save-costs``; None: measure with so many ``repeats``
    first, last: the dynamic zone in blocks of the prefix; 0: two blocks around the cut
    cut: blocks of the prefix at first; 0: the best one in the zone
    """

    checkpoint: str
    prefix: tuple[str, Side]
    suffix: tuple[str, Side]
    fallback: str = "simd"
    reserved: tuple[int, ...] = ()
    nice: int = 0
    engine: EngineSettings = field(default_factory=EngineSettings)
    int8: str = ""
    costs: Path | None = None
    repeats: int = 3
    first: int = 0
    last: int = 0
    cut: int = 0


@dataclass(frozen=True)
class Zone:
    """Where the cut may be: after ``first`` to ``last`` blocks, at first after ``cut``.

    ``names`` are the last blocks of the prefix for these.
    """

    first: int
    last: int
    cut: int
    names: tuple[str, ...]

    def name(self, blocks: int) -> str:
        """The last block of a prefix of ``blocks``."""
        return self.names[blocks - self.first]


class HybridLoader:
    """Makes hybrid policies of one checkpoint, and the same policy whole.

    Args:
        options: see there.
        available: the cores that there are.
        make: makes an executor of a name and settings.
        say: is told what takes long.

    Raises CheckpointError, SettingError, PlacementError, and CostError for a file of costs or a zone that
    does not fit the policy.
    """

    def __init__(
        self,
        options: HybridOptions,
        available: Collection[int],
        make: MakeExecutor = make_executor,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._options = options
        self._make_executor = make
        cores = assign_cores(available, options.reserved, options.prefix[1], options.suffix[1])
        self.places = Placement(cores[0], options.nice), Placement(cores[1], options.nice)
        """Where the threads of the prefix and of the suffix run."""
        self._checkpoint = load_checkpoint(options.checkpoint)
        programs = instruct(self._checkpoint, _INSTRUCTION, options.int8)
        self.costs: StageCosts = self._costs(programs, say)
        """What the blocks cost on either side."""
        self.zone = plan_zone(self.costs, cut_points(programs.compiled), options)
        """Where the cut may be."""

    @property
    def resident_bytes(self) -> tuple[int, int]:
        """Weights that either side holds, those of the zone on both, and the activations of one cut."""
        costs, zone = self.costs, self.zone
        return predict(costs, zone.last).prefix_bytes, predict(costs, zone.first).suffix_bytes

    def controller(self, **settings: Any) -> CutController:
        """One that moves the cut in the zone; ``settings`` are those of ControllerSettings besides it.

        Raises CostError.
        """
        zone = self.zone
        return CutController(self.costs, ControllerSettings(zone.first, zone.last, **settings), zone.cut)

    def hybrid(self, blocks: Callable[[], int]) -> HybridPolicy:
        """The policy on both executors, with every cut of the zone ready; ``blocks`` says where to cut."""
        prefix, suffix = (self._executor(name, place) for name, place in self._sides())
        zone = self.zone
        policy = Policy(self._checkpoint, SplitExecutor(prefix, suffix, zone.names), self._options.int8)
        cuts = {blocks: zone.name(blocks) for blocks in range(zone.first, zone.last + 1)}
        return HybridPolicy(policy, cuts, blocks, self.places)

    def whole(self) -> WholePolicy:
        """The policy that is not cut, on the suffix's cores."""
        place = self.places[1]
        executor = self._executor(self._options.fallback, place)
        return WholePolicy(Policy(self._checkpoint, executor, self._options.int8), place)

    def _sides(self) -> list[tuple[str, Placement]]:
        names = self._options.prefix[0], self._options.suffix[0]
        return list(zip(names, self.places, strict=True))

    def _executor(self, name: str, place: Placement) -> Executor:
        """An executor whose threads run there."""
        engine = self._options.engine
        side = self._options.prefix[1] if place is self.places[0] else self._options.suffix[1]
        threads = side.threads or len(place.cpus)
        if name == "torch" and place is self.places[0]:
            name = "torch:auto"  # on a CUDA device, where there is one
        if name == "simd":
            settings = dataclasses.replace(engine, threads=threads, affinity=place.cpus)
        else:
            settings = EngineSettings(threads=threads)
        return place.run(lambda: self._make_executor(name, settings))

    def _costs(self, programs: InstructedPolicy, say: Callable[[str], None]) -> StageCosts:
        options = self._options
        if options.costs is not None:
            costs = read_costs(options.costs)
            check_costs(costs, programs, options.costs)
            return costs
        say(f"measuring every block {options.repeats} times on either side: a file of costs spares this")
        (case,) = random_cases(self._checkpoint, 1, _SEED)
        # Of their own, so that what they hold is free again afterwards.
        prefix, suffix = (self._executor(name, place) for name, place in self._sides())
        return self.places[1].run(lambda: measure_costs(programs, case, prefix, suffix, options.repeats))


def check_costs(costs: StageCosts, programs: InstructedPolicy, path: Path) -> None:
    """Raise CostError unless ``costs`` are those of the blocks of ``programs``."""
    compiled = programs.compiled
    steps = [STEPS] if compiled.programs[Lifetime.STEP].ops else []
    expected = [*query_blocks(compiled), *steps]
    found = [block.name for block in costs.blocks]
    if found != expected:
        raise CostError(
            f"{path}: has the costs of the blocks {', '.join(found)}; the policy has {', '.join(expected)}"
        )


def plan_zone(costs: StageCosts, names: Sequence[str], options: HybridOptions) -> Zone:
    """The dynamic zone and the cut in it, for a policy that can be cut after the blocks ``names``.

    Raises CostError where what was asked for cannot be.
    """
    if not names:
        raise CostError("the policy has one block only, expected one that can be cut")
    first, last = options.first or 1, options.last or len(names)
    for name, value in (("first", first), ("last", last), ("cut", options.cut or first)):
        if not 1 <= value <= len(names):
            raise CostError(f"the {name} cut is after {value} blocks, expected 1 to {len(names)}")
    if first > last or (options.cut and not first <= options.cut <= last):
        raise CostError(
            f"the zone is {first} to {last} blocks and the cut {options.cut or 'the best one'}, "
            "expected first, cut and last in order"
        )
    candidates = splits(costs, Resources(first=first, last=last))[1 : len(names) + 1]
    cut = options.cut or best_split(candidates).blocks
    first = options.first or max(1, cut - _AROUND)
    last = options.last or min(len(names), cut + _AROUND)
    for split in candidates[first - 1 : last]:
        if math.isinf(split.latency_s):
            raise CostError(
                f"the zone is {first} to {last} blocks, but the cut after {split.blocks} cannot be: "
                f"{'; '.join(split.obstacles)}"
            )
    return Zone(first, last, cut, tuple(names[first - 1 : last]))
