"""``vla_simd split``: where to cut a policy between two executors, from the costs of its blocks."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla_simd_ros.cli import split_live, split_simulation
from vla_simd_ros.cli.arguments import (
    add_decoder,
    add_int8,
    add_num_steps,
    check_outputs,
    count,
    decoder_options,
)
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.hybrid.placement import Placement, PlacementError, Side, assign_cores
from vla_simd_ros.hybrid.split_search import Resources, Split, best_split, splits
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts, read_costs, write_costs

if TYPE_CHECKING:
    from vla_simd_ros.executors.base import Executor
    from vla_simd_ros.inference import Policy

_EXECUTORS = ("torch", "simd")
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_INSTRUCTION = "put the tape into the box"
_SEED = 0


def add_parser(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser = commands.add_parser(
        "split",
        help="find where to cut a policy between two executors",
        description="Measure each block of a policy on two executors, or read such costs from a file, and "
        "predict for every cut how fast frames follow each other when the executors work on consecutive "
        "ones. The memory of a side is that of its weights and activations.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("checkpoint", nargs="?", type=Path, help="LeRobot pretrained_model folder")
    source.add_argument("--costs", type=Path, metavar="FILE", help="costs to read instead of measuring")
    measured = parser.add_argument_group("measurement")
    measured.add_argument(
        "--prefix", choices=_EXECUTORS, default="torch", help="the first executor (default: torch)"
    )
    measured.add_argument(
        "--device",
        metavar="NAME",
        help="where torch computes: cpu, or a CUDA device as PyTorch calls it, cuda:0 (default: one if there "
        "is one)",
    )
    measured.add_argument(
        "--prefix-threads", type=count, default=1, metavar="N", help="its threads (default: 1)"
    )
    measured.add_argument(
        "--repeats", type=count, default=10, metavar="N", help="runs of a block (default: 10)"
    )
    measured.add_argument("--instruction", default=_INSTRUCTION, metavar="TEXT", help="where one is taken")
    measured.add_argument("--save-costs", type=Path, metavar="FILE", help="write the costs there")
    measured.add_argument(
        "--frames",
        type=count,
        metavar="N",
        help="run the best cut with so many frames that overlap, and compare with the prediction",
    )
    measured.add_argument("--at", metavar="BLOCK", help="cut after this block instead of the best one")
    add_int8(measured)
    add_num_steps(measured)
    add_decoder(parser)
    split_live.add_arguments(parser)
    split_simulation.add_arguments(parser)
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--cpu-threads",
        type=count,
        metavar="N",
        help="threads of the second executor (default: 1 to measure with, those of the file with --costs)",
    )
    limits.add_argument("--gpu-memory", type=_size, metavar="SIZE", help="of the first executor, as in 8GiB")
    limits.add_argument("--cpu-memory", type=_size, metavar="SIZE", help="of the second executor")
    limits.add_argument(
        "--gpu-load",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of its time that others take (default: 0)",
    )
    limits.add_argument(
        "--cpu-load",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of its time that others take (default: 0)",
    )
    parser.add_argument("--plan", type=Path, metavar="FILE", help="write all cuts and the best one as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure or read, and print. Raises CostError where no cut is possible."""
    if args.costs and (args.frames or args.at or args.live):
        raise CostError("--frames, --at and --live need a checkpoint to run, --costs has none")
    check_outputs(args.save_costs)
    sides = None if args.costs else _Sides(args)
    costs = read_costs(args.costs) if sides is None else sides.costs()
    if args.save_costs:
        write_costs(costs, args.save_costs)
    resources = Resources(
        prefix_memory=args.gpu_memory,
        suffix_memory=args.cpu_memory,
        suffix_threads=args.cpu_threads,
        prefix_load=args.gpu_load,
        suffix_load=args.cpu_load,
    )
    candidates = splits(costs, resources)
    print("\n".join([costs.source, "", *format_splits(candidates)]))
    best = best_split(candidates)
    print(f"\n{_verdict(best, len(costs.blocks))}")
    if sides is not None and 0 < best.blocks < len(costs.blocks):
        print(f"  {sides.crossing(best.after)}")
    if args.plan:
        args.plan.write_text(json.dumps(_plan(candidates, best, costs), indent=2) + "\n", encoding="utf-8")
    if args.simulate:
        print("\n".join(["", *split_simulation.run_simulation(args, costs)]))
    if sides is not None and args.frames:
        print("\n".join(["", *sides.run(args.at or best.after, args.frames)]))
    if sides is not None and args.live:
        study = split_live.run_live_study(args, prefix_name(args), ",".join(sides.int8), costs)
        print("\n".join(["", *study]))
    if sides is not None and sides.peak_bytes is not None:
        print(f"\nThe most memory in use on the first executor's device: {sides.peak_bytes / 2**20:.1f} MiB")
    return 0


def format_splits(candidates: Sequence[Split]) -> list[str]:
    """A table, one line for each cut; times in milliseconds, what crosses and memory in KiB and MiB."""
    titles = (
        "blocks",
        "after",
        "prefix",
        "transfer",
        "suffix",
        "interval",
        "latency",
        "crossing KiB",
        "prefix MiB",
        "suffix MiB",
    )
    rows = [
        (
            str(split.blocks),
            split.after or "-",
            *(_ms(value) for value in _times(split)),
            f"{split.boundary_bytes / 2**10:.1f}",
            f"{split.prefix_bytes / 2**20:.1f}",
            f"{split.suffix_bytes / 2**20:.1f}",
        )
        for split in candidates
    ]
    widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (titles, *rows)
    ]
    return [
        f"{line}  {'; '.join(split.obstacles)}".rstrip() if split else line
        for line, split in zip(lines, (None, *candidates), strict=True)
    ]


def _times(split: Split) -> tuple[float, ...]:
    return split.prefix_s, split.transfer_s, split.suffix_s, split.interval_s, split.latency_s


def _ms(seconds: float) -> str:
    return "-" if math.isinf(seconds) else f"{seconds * 1e3:.2f}"


def _verdict(best: Split, count: int) -> str:
    if best.blocks == count:
        where = "all blocks on the first executor"
    elif not best.blocks:
        where = "all blocks on the second executor"
    else:
        where = f"the cut after {best.after}"
    return (
        f"Best: {where}: a frame every {_ms(best.interval_s)} ms ({_ms(best.latency_s)} ms each), "
        f"against {_ms(best.latency_s)} ms when frames do not overlap"
    )


def _plan(candidates: Sequence[Split], best: Split, costs: StageCosts) -> dict[str, Any]:
    return {
        "source": costs.source,
        "best": _described(best),
        "splits": [_described(split) for split in candidates],
    }


def _described(split: Split) -> dict[str, Any]:
    values = {**split.__dict__, "interval_s": split.interval_s, "latency_s": split.latency_s}
    return {name: None if value in (math.inf,) else value for name, value in values.items()}


class _Sides:
    """A checkpoint's policy and the executors on either side."""

    def __init__(self, args: argparse.Namespace) -> None:
        from vla_simd_ros.benchmarks.conditions import busy_warning
        from vla_simd_ros.checkpoints import load_checkpoint
        from vla_simd_ros.fidelity.cases import random_cases
        from vla_simd_ros.graph.fold_cache import FoldCache
        from vla_simd_ros.inference import make_executor
        from vla_simd_ros.loaded_programs import choose_groups
        from vla_simd_ros.policies.registry import define_policy

        if warning := busy_warning():
            print(f"warning: {warning}", file=sys.stderr)
        checkpoint = load_checkpoint(args.checkpoint)
        (self._case,) = random_cases(checkpoint, 1, _SEED, num_steps=args.num_steps)
        first = prefix_name(args)
        threads = args.prefix_threads, args.cpu_threads or 1
        self._places = _places(*threads)
        self._prefix, self._suffix = (
            make_executor(name, _on(EngineSettings(threads=count), name, self._places and self._places[i]))
            for i, (name, count) in enumerate(zip((first, "simd"), threads, strict=True))
        )
        self._repeats = args.repeats
        self.int8: tuple[str, ...] = ()
        """The groups of layers in int8 on both sides."""
        if args.int8:
            self.int8 = choose_groups(define_policy(checkpoint), args.int8, self._suffix, FoldCache())
        self._checkpoint = checkpoint
        self._instruction: str = args.instruction
        self._decoder = decoder_options(args)
        self._boundaries: dict[str, Sequence[Tensor]] = {}

    @property
    def peak_bytes(self) -> int | None:
        """The most memory in use on the first executor's device; None where nobody counts."""
        from vla_simd_ros.executors.base import Metered

        return self._prefix.peak_bytes if isinstance(self._prefix, Metered) else None

    def costs(self) -> StageCosts:
        """What every block costs. What is loaded for that is free again afterwards."""
        from vla_simd_ros.fidelity.programs import instruct
        from vla_simd_ros.graph.partition import cut_points, partition
        from vla_simd_ros.hybrid.measure_costs import measure_costs

        def say(text: str) -> None:
            print(text, file=sys.stderr, flush=True)

        policy = instruct(self._checkpoint, self._instruction, self.int8)
        for after in cut_points(policy.compiled):
            self._boundaries[after] = partition(policy.compiled, after).boundary
        decoding = self._policy(self._suffix) if policy.decoder is not None else None
        return measure_costs(
            policy, self._case, self._prefix, self._suffix, self._repeats, say, decoding, self._places
        )

    def _policy(self, executor: Executor) -> Policy:
        """The policy on an executor, instructed."""
        from vla_simd_ros.inference import Policy

        policy = Policy(self._checkpoint, executor, self.int8, decoder=self._decoder)
        policy.set_instruction(self._instruction)
        return policy

    def crossing(self, after: str) -> str:
        """What crosses a cut, in words."""
        tensors = ", ".join(
            f"{tensor.name} {list(tensor.shape)} {tensor.dtype.value} ({tensor.nbytes / 2**10:.1f} KiB)"
            for tensor in self._boundaries[after]
        )
        return f"what crosses there in every frame: {tensors}"

    def run(self, after: str, frames: int) -> list[str]:
        """The policy cut after a block, measured, in words. Raises GraphError where it cannot be cut so."""
        from vla_simd_ros.hybrid.measured_pipeline import measure_pipeline
        from vla_simd_ros.hybrid.split_executor import SplitExecutor
        from vla_simd_ros.hybrid.split_policy import SplitPolicy

        case = self._case
        policy = self._policy(SplitExecutor(self._prefix, self._suffix, [after]))
        request = policy.request(case.observation, noise=case.noise, num_steps=case.num_steps)
        found = measure_pipeline(SplitPolicy(policy, after), request, frames, self._places)
        return [
            f"Measured, cut after {after}, {frames} frames one by one and {found.frames} that overlap:",
            f"  stages alone {_ms(found.prefix_s)} and {_ms(found.suffix_s)} ms, one by one "
            f"{_ms(found.serial_s)} ms a frame",
            f"  overlapping: a frame every {_ms(found.interval_s)} ms, "
            f"{found.interval_s / found.predicted_s - 1:+.1%} against the slower stage alone; "
            f"{found.speedup:.2f} times the rate of one by one; {_ms(found.latency_s)} ms each",
            f"  {self.crossing(after)}",
        ]


def prefix_name(args: argparse.Namespace) -> str:
    """The first executor, with its device."""
    device = args.device or ("auto" if args.prefix == "torch" else "")
    return f"{args.prefix}:{device}" if device else str(args.prefix)


def _places(prefix_threads: int, suffix_threads: int) -> tuple[Placement, Placement] | None:
    """Cores of their own for both sides; None where there are not enough."""
    try:
        sides = Side(threads=prefix_threads), Side(threads=suffix_threads)
        first, second = assign_cores(os.sched_getaffinity(0), (), *sides)
    except PlacementError as error:
        print(f"warning: both sides run on any core: {error}", file=sys.stderr)
        return None
    return Placement(first), Placement(second)


def _on(settings: EngineSettings, executor: str, place: Placement | None) -> EngineSettings:
    """The settings of an engine that runs there."""
    return settings.but(affinity=place.cpus) if place and executor == "simd" else settings


def _size(text: str) -> int:
    """A number of bytes."""
    found = re.fullmatch(r"([0-9.]+) *([A-Za-z]*)", text)
    try:
        if found is None or found[2] not in _UNITS:
            raise ValueError
        return round(float(found[1]) * _UNITS[found[2]])
    except ValueError:
        units = ", ".join(unit for unit in _UNITS if unit)
        raise argparse.ArgumentTypeError(
            f"'{text}' is no size, expected a number and one of {units}"
        ) from None
