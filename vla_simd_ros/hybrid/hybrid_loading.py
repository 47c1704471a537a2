"""What a hybrid policy is made of: the costs of its blocks, the zone of its cuts, its executors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.decoding.decoders import DEFAULT_OPTIONS, DecoderOptions
from vla_simd_ros.executors.base import Executor
from vla_simd_ros.executors.int8_choice import AUTO, TimesOperations
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.programs import InstructedPolicy, instruct
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.int8_groups import group_names
from vla_simd_ros.graph.ir import Lifetime
from vla_simd_ros.graph.partition import cut_points, query_blocks, single_blocks
from vla_simd_ros.hybrid.cut_controller import ControllerSettings, CutController
from vla_simd_ros.hybrid.hybrid_policy import HybridPolicy, PrefixEnded, WholePolicy
from vla_simd_ros.hybrid.measure_costs import STEPS, measure_costs, weight_bytes
from vla_simd_ros.hybrid.placement import Placement, Side, assign_cores
from vla_simd_ros.hybrid.split_executor import SplitExecutor
from vla_simd_ros.hybrid.split_search import Resources, Split, best_split, predict, splits
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts, read_costs
from vla_simd_ros.inference import Policy, make_executor
from vla_simd_ros.loaded_programs import choose_groups
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.tuning.tuned import DEFAULT, Choice, resolve

_INSTRUCTION = "go"
_SEED = 0
_AROUND = 2
"""Blocks on either side of the best cut that the dynamic zone reaches where nothing is said."""

_OF_ANOTHER = 0.05
"""Share by which weights differ from those that costs tell of, where these are another policy's."""

MakeExecutor = Callable[[str, EngineSettings], Executor]


@dataclass(frozen=True)
class HybridOptions:
    """How a checkpoint is shared between two executors.

    checkpoint: its folder
    prefix, suffix: executor, cores and threads of either side
    fallback: that of the whole policy, on the suffix's cores
    reserved: cores that neither side uses
    nice: how far both stand back for others, 0 to 19
    settings: where those of engines come from, see :func:`vla_simd_ros.tuning.tuned.resolve`; what was tuned
        for another number of threads than a side has is not used there
    engine: changes to them on either side, besides threads and affinity
    int8: groups of layers in int8; "auto": those that the suffix's engine computes faster so, or the prefix's
        where the suffix has none
    costs: a file of ``vla_simd split --save-costs``; None: measure with so many ``repeats``
    decoder: that of the action tokens of a policy that has them, whose passes count where costs are measured
    zone_first, zone_last: the dynamic zone in blocks of the prefix; 0: two blocks around the cut
    cut: blocks of the prefix at first; 0: the best one in the zone
    prefix_memory, suffix_memory: bytes that either side may hold, the whole zone included; None: no limit
    """

    checkpoint: str
    prefix: tuple[str, Side]
    suffix: tuple[str, Side]
    fallback: str = "simd"
    reserved: tuple[int, ...] = ()
    nice: int = 0
    settings: str = DEFAULT
    engine: EngineSettings = field(default_factory=EngineSettings)
    int8: str = ""
    costs: Path | None = None
    repeats: int = 3
    decoder: DecoderOptions = DEFAULT_OPTIONS
    zone_first: int = 0
    zone_last: int = 0
    cut: int = 0
    prefix_memory: int | None = None
    suffix_memory: int | None = None


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

    Raises CheckpointError, SettingError, TuningError, Int8GroupError, PlacementError, and CostError for a
    file of costs or a zone that does not fit the policy.
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
        self._choices = tuple(map(self._choice, (options.prefix[1], options.suffix[1]), self.places))
        self._check_threads()
        self.int8 = self._groups()
        """The groups of layers in int8."""
        programs = instruct(self._checkpoint, _INSTRUCTION, self.int8)
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

    def hybrid(
        self, blocks: Callable[[], int], prefix_ended: PrefixEnded = lambda blocks, took_s: None
    ) -> HybridPolicy:
        """The policy on both executors, with every cut of the zone ready; ``blocks`` says where to cut,
        ``prefix_ended`` is as of HybridPolicy."""
        prefix, suffix = (self._executor(name, place) for name, place in self._sides())
        zone = self.zone
        executor = SplitExecutor(prefix, suffix, zone.names, lambda: zone.name(blocks()))
        policy = Policy(self._checkpoint, executor, self.int8)
        cuts = {blocks: zone.name(blocks) for blocks in range(zone.first, zone.last + 1)}
        return HybridPolicy(policy, cuts, blocks, self.places, prefix_ended)

    def whole(self) -> WholePolicy:
        """The policy that is not cut, on the suffix's cores."""
        place = self.places[1]
        executor = self._executor(self._options.fallback, place)
        return WholePolicy(Policy(self._checkpoint, executor, self.int8), place)

    def _sides(self) -> list[tuple[str, Placement]]:
        names = self._options.prefix[0], self._options.suffix[0]
        return list(zip(names, self.places, strict=True))

    def _executor(self, name: str, place: Placement) -> Executor:
        """An executor whose threads run there."""
        settings = self._choices[0 if place is self.places[0] else 1].settings
        if name == "torch" and place is self.places[0]:
            name = "torch:auto"  # on a CUDA device, where there is one
        if name == "simd":
            settings = settings.but(affinity=place.cpus)
        else:
            settings = EngineSettings(threads=settings.threads)
        return place.run(lambda: self._make_executor(name, settings))

    def _choice(self, side: Side, place: Placement) -> Choice:
        """Settings of an engine with the threads of a side."""
        options = self._options
        changes = {**options.engine.changed(), "threads": side.threads or len(place.cpus)}
        return resolve(options.settings, self._checkpoint, changes, options.int8)

    def _check_threads(self) -> None:
        """Raise SettingError for two numbers of threads where there can be one only."""
        first, second = (choice.settings.threads for choice in self._choices)
        if [name for name, _ in self._sides()] == ["torch"] * 2 and first != second:
            raise SettingError(
                f"prefix_threads is {first} and suffix_threads {second}, expected the same where torch "
                "computes both: PyTorch has one number for the whole process"
            )

    def _groups(self) -> tuple[str, ...]:
        """The groups of layers in int8, the same on both sides."""
        groups = self._choices[1].int8
        if group_names(groups) != (AUTO,):
            return group_names(groups)
        # Of their own, so that what they hold is free again afterwards.
        executors = [self._executor(name, place) for name, place in self._sides()]
        timing = next((each for each in reversed(executors) if isinstance(each, TimesOperations)), None)
        return choose_groups(define_policy(self._checkpoint), groups, timing, FoldCache())

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

        def measure() -> StageCosts:
            decoding = None
            if programs.decoder is not None:
                decoding = Policy(self._checkpoint, suffix, self.int8, decoder=options.decoder)
                decoding.set_instruction(_INSTRUCTION)
            return measure_costs(
                programs, case, prefix, suffix, options.repeats, decoding=decoding, places=self.places
            )

        return self.places[1].run(measure)


def check_costs(costs: StageCosts, programs: InstructedPolicy, path: Path) -> None:
    """Raise CostError unless ``costs`` are those of the blocks of ``programs``; weights of 0 bytes are not
    known, and those of another instruction are nearly the same."""
    compiled = programs.compiled
    steps = [STEPS] if compiled.programs[Lifetime.STEP].ops else []
    expected = [*query_blocks(compiled), *steps]
    found = [block.name for block in costs.blocks]
    if found != expected:
        raise CostError(
            f"{path}: has the costs of the blocks {', '.join(found)}; the policy has {', '.join(expected)}"
        )
    weights = sum(weight_bytes(alone, Lifetime.QUERY) for _, alone in single_blocks(compiled))
    told = sum(block.prefix_bytes for block in costs.blocks)
    if told and abs(told - weights) > _OF_ANOTHER * weights:
        raise CostError(
            f"{path}: the blocks have {told / 2**20:.1f} MiB of weights, expected the policy's, "
            f"{weights / 2**20:.1f} MiB: these are the costs of another one"
        )


def plan_zone(costs: StageCosts, names: Sequence[str], options: HybridOptions) -> Zone:
    """The dynamic zone and the cut in it, for a policy that can be cut after the blocks ``names``.

    Raises CostError where what was asked for cannot be.
    """
    if not names:
        raise CostError("the policy has one block only, expected one that can be cut")
    first, last = options.zone_first or 1, options.zone_last or len(names)
    for name, value in (("zone_first", first), ("zone_last", last), ("cut", options.cut or first)):
        if not 1 <= value <= len(names):
            raise CostError(f"{name} is {value}, expected 1 to {len(names)}, the blocks of a prefix")
    if first > last:
        raise CostError(f"zone_first is {first} and zone_last {last}, expected the first not behind the last")
    if options.cut and not first <= options.cut <= last:
        raise CostError(f"cut is {options.cut}, expected {first} to {last}, the zone")
    allowed = Resources(options.prefix_memory, options.suffix_memory, first=first, last=last)
    candidates = splits(costs, allowed)[1 : len(names) + 1]
    _check_memory(candidates[first - 1 : last], options)
    cut = options.cut or best_split(candidates).blocks
    first = options.zone_first or _farthest(candidates, cut, -1)
    last = options.zone_last or _farthest(candidates, cut, 1)
    for split in candidates[first - 1 : last]:
        if split.obstacles:
            raise CostError(
                f"zone_first is {first} and zone_last {last}, but the cut after {split.blocks} blocks cannot "
                f"be: {'; '.join(split.obstacles)}"
            )
    return Zone(first, last, cut, tuple(names[first - 1 : last]))


def _check_memory(candidates: Sequence[Split], options: HybridOptions) -> None:
    """Raise CostError for a side that may hold less than it does with any of the cuts."""
    for side in ("prefix", "suffix"):
        limit = getattr(options, f"{side}_memory")
        least = min(getattr(split, f"{side}_bytes") for split in candidates)
        if limit is not None and limit < least:
            raise CostError(
                f"{side}_memory is {limit / 2**20:g} MiB, expected at least the {least / 2**20:.1f} MiB that "
                f"the {side} holds"
            )


def _farthest(candidates: Sequence[Split], cut: int, step: int) -> int:
    """The end of the zone in one direction where nothing is said: two blocks from the cut, or as far as it
    can be."""
    end = cut
    for blocks in range(cut + step, cut + (_AROUND + 1) * step, step):
        if not 1 <= blocks <= len(candidates) or candidates[blocks - 1].obstacles:
            break
        end = blocks
    return end
