"""``vla_simd split --simulate``: the moving cut over load traces, beside fixed cuts and who knows it all."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from vla_simd_ros.cli.arguments import count
from vla_simd_ros.cli.split_live import zone_of
from vla_simd_ros.hybrid.cut_controller import ControllerSettings
from vla_simd_ros.hybrid.load_simulation import SimulatedLoad, simulate_load
from vla_simd_ros.hybrid.load_traces import LOAD_KINDS, LOADED_SIDES, LoadTrace, make_loads, read_loads
from vla_simd_ros.hybrid.split_search import Resources, best_split, splits
from vla_simd_ros.hybrid.stage_costs import CostError, StageCosts

_ALL = "all"
_LARGE_LOAD = 0.7
"""Of either side, for the zone where none is given."""
_CLOSE = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a simulation takes."""
    simulated = parser.add_argument_group(
        "simulation",
        "the cut is moved over load traces, in a zone as of a live run, and compared with every fixed cut "
        "and with the best cut for each frame, which only who knows the trace can choose",
    )
    simulated.add_argument(
        "--simulate",
        type=lambda text: text.split(","),
        metavar="LOAD,...",
        help=f"kinds of load ({', '.join(LOAD_KINDS)}), {_ALL} of them, or files *.csv: a line for each "
        "frame, the shares of the first and the second side's time that others take, a comma between",
    )
    simulated.add_argument(
        "--trace-frames", type=count, default=2000, metavar="N", help="length of a trace (default: 2000)"
    )
    simulated.add_argument(
        "--trace-seed", type=int, default=0, metavar="N", help="another one gives other traces (default: 0)"
    )
    simulated.add_argument(
        "--noise", type=float, default=0.02, metavar="SHARE", help="of the stages' times (default: 0.02)"
    )
    simulated.add_argument(
        "--delay",
        type=int,
        default=0,
        metavar="N",
        help="frames under way when a cut is chosen, besides the last one: their second stages are not over "
        "(default: 0)",
    )


def run_simulation(args: argparse.Namespace, costs: StageCosts) -> list[str]:
    """All traces; what came out, in words. Raises CostError for a load, a zone or a delay that cannot be."""
    from vla_simd_ros.benchmarks.table import markdown_table

    idle = Resources(prefix_memory=args.gpu_memory, suffix_memory=args.cpu_memory)
    loaded = replace(idle, prefix_load=_LARGE_LOAD), replace(idle, suffix_load=_LARGE_LOAD)
    first, last = args.zone or zone_of(costs, [idle, *loaded])
    zone = ControllerSettings(first, last)
    start = best_split([split for split in splits(costs, idle) if first <= split.blocks <= last]).blocks
    if not 0.0 <= args.noise < 1.0:
        raise CostError(f"the noise is {args.noise}, expected 0 or more and less than 1")
    rng = np.random.default_rng(args.trace_seed)
    noise = tuple(np.maximum(rng.normal(1.0, args.noise, 2 * args.trace_frames), 0.1))
    found = {
        names: simulate_load(costs, zone, start, loads, noise, args.delay)
        for names, loads in _traces(args.simulate, args.trace_seed, args.trace_frames)
    }
    return [
        f"Simulated with a zone of {first} to {last} blocks, noise of {args.noise:.0%}, "
        f"{args.delay} frames under way besides the last one; mean milliseconds from frame to frame.",
        "",
        *markdown_table(_HEADER, [[*names, *_row(result)] for names, result in found.items()]),
        "",
        _summary(list(found.values())),
    ]


_HEADER = [
    "load",
    "side",
    "moved",
    "who knows",
    "longer",
    "best fixed cut",
    "longer than who knows",
    "moved against it",
    "moves",
]


def _traces(names: Sequence[str], seed: int, frames: int) -> Iterator[tuple[tuple[str, str], LoadTrace]]:
    for name in LOAD_KINDS if list(names) == [_ALL] else names:
        if name.endswith(".csv"):
            yield (Path(name).stem, "recorded"), read_loads(Path(name))
        else:
            for side in LOADED_SIDES:
                yield (name, side), make_loads(name, side, seed, frames)


def _row(found: SimulatedLoad) -> list[str]:
    fixed_s = found.fixed_s[found.best_fixed]
    return [
        f"{found.controlled_s * 1e3:.1f}",
        f"{found.oracle_s * 1e3:.1f}",
        f"{found.over_oracle:.1%}",
        f"{fixed_s * 1e3:.1f} ({found.best_fixed} blocks)",
        f"{fixed_s / found.oracle_s - 1.0:.1%}",
        f"{found.over_fixed:+.1%}",
        str(found.moves),
    ]


def _summary(found: Sequence[SimulatedLoad]) -> str:
    over = [result.over_oracle for result in found]
    close = sum(value <= _CLOSE for value in over)
    return (
        f"{len(over)} traces: {np.mean(over):.1%} longer than who knows in the mean, at most {_CLOSE:.0%} in "
        f"{close}; against the best fixed cut {np.mean([result.over_fixed for result in found]):+.1%} in the "
        f"mean, {max(result.over_fixed for result in found):+.1%} at most."
    )
