"""``vla_simd supply``: whether a policy on this machine keeps a controller supplied, and how rarely not."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

from vla_simd_ros.cli.arguments import (
    add_decoder,
    add_num_steps,
    add_seed,
    add_settings,
    check_outputs,
    decoder_options,
    setting_changes,
)
from vla_simd_ros.control.budget import SupplyForecast, advice, forecast
from vla_simd_ros.control.latency_trace import read_trace
from vla_simd_ros.control.schedule import Schedule, Seconds, SupplyError, query_steps
from vla_simd_ros.control.supply_simulation import Simulated, simulate
from vla_simd_ros.control.timeline import Mode

_INSTRUCTION = "put the tape into the box"
_OBSERVATIONS = 4
_WARMUP = 5
_SEED = 0
_SIMULATED_CHUNKS = 100_000
# Above this, latencies come in slow phases rather than independently.
_CORRELATED = 0.3

_INCLUDED = (
    "Latency is from a raw observation (uint8 frames, state in robot units) to the chunk in robot units. "
    "Camera, transport and image decoding are not in it: --added gives their time."
)


@dataclasses.dataclass(frozen=True, eq=False)
class _Sample:
    """Latencies, the window of their policy, where they come from, and whether it could take fewer
    solver steps."""

    latencies: Seconds
    window: int
    source: str
    fewer_steps: bool


def add_parser(subparsers: Any) -> None:
    """Add this command to the command line."""
    parser = subparsers.add_parser(
        "supply",
        help="predict whether a policy keeps a controller supplied with actions",
        description="Measure a policy's queries on this machine, or read a trace of their latencies, and say "
        f"whether a controller finds an action at every step. {_INCLUDED}",
    )
    parser.add_argument(
        "checkpoint", nargs="?", metavar="CHECKPOINT", help="policy folder; may be left out with --trace"
    )
    parser.add_argument("--rate", type=float, default=30.0, metavar="HZ", help="control rate (default: 30)")
    parser.add_argument(
        "--window", type=int, metavar="H", help="rows of a chunk to execute (default: the checkpoint's)"
    )
    parser.add_argument(
        "--interval",
        type=int,
        default=0,
        metavar="STEPS",
        help="least number of control steps between two queries (default: 0, back to back)",
    )
    parser.add_argument(
        "--added", type=float, default=0.0, metavar="MS", help="delay by camera and transport (default: 0)"
    )
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="latencies in milliseconds instead of measuring: .csv (column latency_ms), .json or .npz "
        "(latencies_ms)",
    )
    parser.add_argument("--queries", type=int, default=200, metavar="N", help="to measure (default: 200)")
    parser.add_argument("--instruction", default=_INSTRUCTION, metavar="TEXT", help="where one is taken")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write results and latencies there; also a trace"
    )
    add_num_steps(parser)
    add_seed(parser)
    add_decoder(parser)
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Measure or read, and print. Raises `SupplyError` for what cannot be forecast."""
    _check(args)
    sample = _read(args) if args.trace else _measure(args)
    latencies = sample.latencies
    schedule = Schedule(args.rate, sample.window, args.interval, args.added * 1e-3)
    found = forecast(latencies, schedule)
    hours = _SIMULATED_CHUNKS / query_steps(latencies, schedule).chunks_per_hour
    simulated = {mode: simulate(latencies, schedule, mode, hours) for mode in Mode}
    advised = advice(found, sample.fewer_steps)
    print("\n".join([*_lines(found, simulated, sample.source), "", advised]))
    if args.json:
        content = {**_to_json(found, simulated, sample), "advice": advised}
        args.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def _check(args: argparse.Namespace) -> None:
    if not args.trace and not args.checkpoint:
        raise SupplyError("neither a checkpoint nor --trace is given, expected one to take latencies from")
    if not args.checkpoint and args.window is None:
        raise SupplyError("--trace without a checkpoint leaves the window open, expected --window")
    if args.queries < 1:
        raise SupplyError(f"--queries is {args.queries}, expected at least 1")
    check_outputs(args.json)


def _window(asked: int | None, n_action_steps: int, chunk_size: int) -> int:
    window = n_action_steps if asked is None else asked
    if window > chunk_size:
        raise SupplyError(f"--window is {window}, expected at most the chunk size, {chunk_size}")
    return window


def _read(args: argparse.Namespace) -> _Sample:
    window, fewer_steps = args.window, False
    if args.checkpoint:
        from vla_simd_ros.checkpoints import load_checkpoint
        from vla_simd_ros.policies.registry import define_policy
        from vla_simd_ros.sampling import takes_fewer_steps

        policy = define_policy(load_checkpoint(args.checkpoint))
        window = _window(window, policy.spec.n_action_steps, policy.spec.chunk_size)
        fewer_steps = takes_fewer_steps(policy.solver)
    return _Sample(read_trace(args.trace), window, f"trace {args.trace}", fewer_steps)


def _measure(args: argparse.Namespace) -> _Sample:
    """Latencies of queries back to back on random observations, in seconds."""
    import numpy as np

    from vla_simd_ros.benchmarks.conditions import busy_warning
    from vla_simd_ros.checkpoints import load_checkpoint
    from vla_simd_ros.fidelity.observations import random_observations
    from vla_simd_ros.inference import Policy
    from vla_simd_ros.machine import cpu_model
    from vla_simd_ros.sampling import takes_fewer_steps

    if warning := busy_warning():
        print(f"warning: {warning}", file=sys.stderr)
    decoder = dataclasses.asdict(decoder_options(args))
    changes = setting_changes(args)
    policy = Policy.load(args.checkpoint, settings=args.settings, seed=args.seed, **decoder, **changes)
    window = _window(args.window, policy.spec.n_action_steps, policy.spec.chunk_size)
    if policy.spec.uses_instruction:
        policy.set_instruction(args.instruction)
    observations = random_observations(load_checkpoint(args.checkpoint), _OBSERVATIONS, _SEED)
    print(f"measuring {args.queries} queries of {policy.name}", file=sys.stderr, flush=True)
    policy.warm_up()
    times = [
        policy.query(observations[i % _OBSERVATIONS], num_steps=args.num_steps).timing.total_ms
        for i in range(_WARMUP + args.queries)
    ]
    steps = f", {args.num_steps or policy.solver.default_steps} steps" if policy.solver else ""
    steps += f", decoder {policy.decoder}" if policy.decoder else ""
    source = f"{policy.name} on {cpu_model()}, {policy.isa}, {policy.threads} threads{steps}"
    return _Sample(np.array(times[_WARMUP:]) * 1e-3, window, source, takes_fewer_steps(policy.solver))


def _lines(found: SupplyForecast, simulated: dict[Mode, Simulated], source: str) -> list[str]:
    schedule = found.schedule
    queries = f"a query every {schedule.interval} steps" if schedule.interval else "queries back to back"
    lines = [
        source,
        f"{found.samples} latencies, window H = {schedule.window} rows, {schedule.rate:g} Hz, {queries}, "
        f"{schedule.added_s * 1e3:g} ms for camera and transport",
        _INCLUDED,
        "",
        f"action-supply rate f_eff = H / T_q: {found.supply_rate:.4g} actions/s at the median",
        "",
        *_budget_table(found),
    ]
    if found.samples < 1000:
        lines.append(f"With {found.samples} latencies, p99.9 is the longest one measured.")
    lines += ["", *_starvation_table(found, simulated)]
    if found.correlation > _CORRELATED:
        lines.append(
            f"Slow queries follow each other (correlation {found.correlation:.2f}): "
            "starvations come in bursts."
        )
    return lines


def _budget_table(found: SupplyForecast) -> list[str]:
    title = (
        f"{'':8}{'latency':>11}{'d':>6}{'C1: d <= H':>16}{'C2: 2d <= H':>16}{'largest rate (Hz)':>22}"
        f"{'smallest H':>18}"
    )
    units = f"{'':8}{'ms':>11}{'steps':>6}{'':32}{'lagged':>11}{'aligned':>11}{'lagged':>9}{'aligned':>9}"
    lines = [title, units]
    for quantile, budget in found.budgets.items():
        name = "median" if quantile == 0.5 else f"p{quantile * 100:g}"
        lines.append(
            f"{name:8}{budget.latency_s * 1e3:11.1f}{budget.delay:6d}{_verdict(budget.c1):>16}"
            f"{_verdict(budget.c2):>16}{budget.rate_lagged:11.1f}{budget.rate_time_aligned:11.1f}"
            f"{budget.window_lagged:9d}{budget.window_time_aligned:9d}"
        )
    return lines


def _verdict(margin: int) -> str:
    return f"{'met' if margin >= 0 else 'fails'}, {margin:+d}"


def _starvation_table(found: SupplyForecast, simulated: dict[Mode, Simulated]) -> list[str]:
    lines = [
        f"{'rows run out':14}{'per chunk':>12}{'per hour':>12}{'95 % interval':>22}{'in an hour':>12}"
        f"{'starved steps':>15}{'simulated per hour':>24}"
    ]
    for mode, rates in found.starvation.items():
        low, high = (f"{bound:.3g}" for bound in (rates.low, rates.high))
        run = simulated[mode]
        lines.append(
            f"{mode.value:14}{rates.per_chunk:12.3g}{rates.per_hour:12.3g}{f'{low} to {high}':>22}"
            f"{rates.within_hour:12.3g}{rates.starved_share:15.3g}{f'{run.low:.3g} to {run.high:.3g}':>24}"
        )
    lines.append(
        f"The interval counts what {found.samples} latencies cannot exclude: "
        f"queries slower than the longest, {found.longest_s * 1e3:.1f} ms."
    )
    return lines


def _simulated(run: Simulated) -> dict[str, Any]:
    counts = dataclasses.asdict(run) | {"per_hour": run.per_hour, "starved_share": run.starved_share}
    return {name: _number(value) for name, value in counts.items()}


def _number(value: float) -> float | None:
    """JSON has no other numbers than finite ones."""
    return value if math.isfinite(value) else None


def _to_json(found: SupplyForecast, simulated: dict[Mode, Simulated], sample: _Sample) -> dict[str, Any]:
    schedule = found.schedule
    return {
        "source": sample.source,
        "rate": schedule.rate,
        "window": schedule.window,
        "interval": schedule.interval,
        "added_ms": schedule.added_s * 1e3,
        "samples": found.samples,
        "supply_rate": _number(found.supply_rate),
        "correlation": _number(found.correlation),
        "budgets": [
            {
                "quantile": quantile,
                "latency_ms": budget.latency_s * 1e3,
                "delay_steps": budget.delay,
                "c1_margin": budget.c1,
                "c2_margin": budget.c2,
                "rate_lagged": _number(budget.rate_lagged),
                "rate_time_aligned": _number(budget.rate_time_aligned),
                "window_lagged": budget.window_lagged,
                "window_time_aligned": budget.window_time_aligned,
            }
            for quantile, budget in found.budgets.items()
        ],
        "starvation": [
            dataclasses.asdict(rates) | {"simulated": _simulated(simulated[mode])}
            for mode, rates in found.starvation.items()
        ],
        "latencies_ms": (sample.latencies * 1e3).tolist(),
    }
