"""``vla_simd split --live``: the cut moved beside somebody who takes a share of one side's cores."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vla_simd_ros.cli.arguments import decoder_options
from vla_simd_ros.hybrid.split_search import Resources, best_split, splits
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts, write_costs

_LOADS = (0.0, 0.5, 0.0, 0.7, 0.0)
_SIDES = ("suffix", "prefix")
_MOST_FIXED = 4
_SEED = 0
_MIB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a live run takes."""
    live = parser.add_argument_group(
        "live run",
        "frames overlap while a process takes a share of one side's cores: first with a cut that moves, then "
        "with fixed ones",
    )
    live.add_argument("--live", type=_seconds, metavar="S", help="run for so many seconds with every cut")
    live.add_argument(
        "--loads",
        type=_shares,
        default=_LOADS,
        metavar="SHARE,...",
        help=f"shares that are taken, one after the other (default: {','.join(map(str, _LOADS))})",
    )
    live.add_argument("--loaded", choices=_SIDES, default=_SIDES[0], help="whose cores (default: suffix)")
    live.add_argument(
        "--zone",
        type=_zone,
        metavar="FIRST:LAST",
        help="blocks of the prefix at least and at most (default: the best cuts under the loads)",
    )
    live.add_argument(
        "--out",
        type=Path,
        default=Path("out/hybrid"),
        metavar="DIR",
        help="folder for table, numbers and picture of it (default: out/hybrid)",
    )


def run_live_study(args: argparse.Namespace, prefix: str, int8: str, costs: StageCosts) -> list[str]:
    """All runs, ``prefix`` being the first executor, with the groups of layers ``int8``; what came out, in
    words. Raises CostError where there is no zone."""
    from vla_simd_ros.benchmarks.hybrid_live import Schedule, live_table, run_live
    from vla_simd_ros.benchmarks.loaded_cores import LoadedCores
    from vla_simd_ros.benchmarks.table import markdown_table
    from vla_simd_ros.hybrid.cut_mover import CutMover
    from vla_simd_ros.hybrid.machine_state import MachineState

    schedule = Schedule(args.loaded, args.loads, args.live / len(args.loads))
    limits = {"prefix_memory": args.gpu_memory, "suffix_memory": args.cpu_memory}
    states = [dataclasses.replace(schedule.resources(load), **limits) for load in args.loads]
    first, last = args.zone or zone_of(costs, states)
    loader = _loader(args, prefix, int8, costs, (first, last))
    places = loader.places
    machine = MachineState.of_this(cpus=places[1].cpus)
    for side, problem in machine.problems.items():
        print(f"split: the load of the {side} is unknown: {problem}", file=sys.stderr)
    mover = CutMover(loader.controller(), machine)
    cut: list[int | None] = [None]  # None: where the mover says

    def prefix_ended(blocks: int, took_s: float) -> None:
        if cut[0] is None:
            mover.prefix_ended(blocks, took_s)

    policy = loader.hybrid(lambda: mover.blocks if cut[0] is None else cut[0], prefix_ended)
    policy.policy.set_decoder(**dataclasses.asdict(decoder_options(args)))
    policy.policy.set_instruction(args.instruction)
    policy.warm_up()
    observation = policy.policy.blank_observation()
    runs = []
    with LoadedCores(places[_SIDES[::-1].index(args.loaded)].cpus) as taker:
        for fixed in (None, *_some(first, last)):
            cut[0] = fixed
            _say("a cut that moves" if fixed is None else f"the cut after {costs.blocks[fixed - 1].name}")
            runs.append(
                run_live(policy, observation, schedule, taker, mover if fixed is None else None, fixed)
            )
    lines = [
        costs.source,
        f"The prefix on CPUs {_listed(places[0].cpus)}, the suffix on {_listed(places[1].cpus)}.",
        "",
        *_held(costs, first, last),
        "",
        f"Mean milliseconds from result to result, {args.live:g} s with each cut, a share of the "
        f"{args.loaded}'s cores taken in turn; in brackets what the costs predict, of the best cut of the "
        "zone where it moves.",
        "",
        *_table(markdown_table, live_table(runs, schedule, costs, range(first, last + 1))),
    ]
    _write(args.out, lines, runs, schedule, costs)
    return [*lines, "", f"written to {args.out}"]


def _table(markdown_table: Any, rows: list[list[str]]) -> list[str]:
    header, *body = rows
    table: list[str] = markdown_table(header, body)
    return table


def _loader(
    args: argparse.Namespace, prefix: str, int8: str, costs: StageCosts, zone: tuple[int, int]
) -> Any:
    from vla_simd_ros.hybrid.hybrid_loading import HybridLoader, HybridOptions
    from vla_simd_ros.hybrid.placement import Side

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "costs.json"
        write_costs(costs, file)
        options = HybridOptions(
            checkpoint=str(args.checkpoint),
            prefix=(prefix, Side(threads=args.prefix_threads)),
            suffix=("simd", Side(threads=args.cpu_threads or 1)),
            int8=int8,
            costs=file,
            zone_first=zone[0],
            zone_last=zone[1],
        )
        return HybridLoader(options, os.sched_getaffinity(0))


def zone_of(costs: StageCosts, states: Sequence[Resources]) -> tuple[int, int]:
    """From the least to the most blocks that the best cut has under the loads, and one more either way, where
    that can be. Raises CostError where no cut can."""
    candidates = [
        [split for split in splits(costs, state) if 0 < split.blocks < len(costs.blocks)] for state in states
    ]
    if not candidates[0]:
        raise CostError("the policy has one block only, expected one that can be cut")
    best = [best_split(there).blocks for there in candidates]
    possible = [split.blocks for split in candidates[0] if not split.obstacles]
    return max(possible[0], min(best) - 1), min(possible[-1], max(best) + 1)


def _some(first: int, last: int) -> list[int]:
    """Cuts across a zone, its ends among them."""
    count = min(_MOST_FIXED, last - first + 1)
    if count == 1:
        return [first]
    return [first + round(i * (last - first) / (count - 1)) for i in range(count)]


def _held(costs: StageCosts, first: int, last: int) -> list[str]:
    prefix = costs.blocks[last - 1].prefix_held_bytes / _MIB
    suffix = costs.blocks[first - 1].suffix_held_bytes / _MIB
    both = sum(block.prefix_bytes for block in costs.blocks[first:last]) / _MIB
    return [
        f"Zone of {first} to {last} blocks: the first side holds {prefix:.1f} MiB, the second "
        f"{suffix:.1f} MiB; {both:.1f} MiB of these are the zone's weights, which both sides hold."
    ]


def _write(out: Path, lines: Sequence[str], runs: Sequence[Any], schedule: Any, costs: StageCosts) -> None:
    from vla_simd_ros.benchmarks.hybrid_live_plot import plot_live

    out.mkdir(parents=True, exist_ok=True)
    (out / "live.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    content = {"source": costs.source, "schedule": schedule.__dict__, "runs": [run.to_json() for run in runs]}
    (out / "live.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    try:
        plot_live(runs, schedule, costs.source, out / "live.png")
    except ImportError as error:
        _say(f"no picture, the package matplotlib is not installed: {error}")


def _say(text: str) -> None:
    print(f"split: {text}", file=sys.stderr, flush=True)


def _listed(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no time, expected seconds")
    return value


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = (-1.0,)
    if not all(0.0 <= share < 1.0 for share in shares):
        raise argparse.ArgumentTypeError(f"'{text}' are no shares, expected numbers from 0 to below 1")
    return shares


def _zone(text: str) -> tuple[int, int]:
    first, separator, last = text.partition(":")
    if not (separator and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"'{text}' is no zone, expected FIRST:LAST, as in 8:14")
    return int(first), int(last)
