"""A comparison as JSON, with all that a repetition needs, and as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vla_simd_ros.benchmarks.co_runner import CoRun
from vla_simd_ros.benchmarks.session import BenchResult, Options, RunnerResult
from vla_simd_ros.benchmarks.soak import WINDOW_S, Soak
from vla_simd_ros.benchmarks.statistics import TAIL_BOUND, TAIL_QUERIES, Summary
from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.benchmarks.tail import tail_tables
from vla_simd_ros.graph.int8 import FP32, INT8

BOUNDARY = "raw uint8 frames and un-normalized state in, actions in robot units out; text encoded before"
ORDER = "A-B-B-A: in each block every runner in order, then in reverse; one process each, stopped in between"


@dataclass(frozen=True)
class Context:
    """What surrounds a comparison: the policy, its checkpoint, the observations and the machine."""

    policy: str
    cameras: Mapping[str, str]
    checkpoint: Mapping[str, str]
    observations: str
    machine: Mapping[str, Any]


def to_json(result: BenchResult, options: Options, context: Context) -> dict[str, Any]:
    """The comparison as JSON values."""
    return {
        "policy": context.policy,
        "cpu": context.machine["cpu"],
        "isa": result.isa,
        "threads": result.threads,
        "steps": options.steps,
        "decoder": None if result.runners[0].decoding is None else str(options.decoder),
        "results": [_runner_json(runner) for runner in result.runners],
        "speedup_vs_fastest_peer": result.speedup_vs_fastest_peer(),
        "fastest_peer": result.fastest_peer(),
        "speedup_vs_fastest_int8_peer": result.speedup_vs_fastest_peer(INT8),
        "fastest_int8_peer": result.fastest_peer(INT8),
        "speedups": {peer: asdict(comparison) for peer, comparison in result.comparisons.items()},
        "decoders": {name: asdict(comparison) for name, comparison in result.decoders.items()},
        "soak": asdict(result.soak) if result.soak else None,
        "co_run": asdict(result.co_run) if result.co_run else None,
        "tail": result.tail.to_json() if result.tail else None,
        "profile": [asdict(op) for op in result.profile] if result.profile else None,
        "protocol": {
            "boundary": BOUNDARY,
            "order": ORDER,
            "warmup": options.warmup,
            "blocks": options.plan.blocks,
            "queries_per_visit": options.plan.per_visit,
            "observations": context.observations,
            "cameras": dict(context.cameras),
            "instruction": options.instruction,
        },
        "checkpoint": dict(context.checkpoint),
        "machine": dict(context.machine),
    }


def _runner_json(result: RunnerResult) -> dict[str, Any]:
    return {
        "runner": result.runner,
        "precision": result.precision,
        **asdict(result.summary),
        "departure": result.departure,
        "programs_ms": dict(result.programs_ms),
        "decoding": None if result.decoding is None else asdict(result.decoding),
        "details": dict(result.details),
        "blocks_ms": result.blocks_ms,
    }


def to_markdown(result: BenchResult, options: Options, context: Context) -> str:
    """The conditions as a list, then the table; ends with a newline."""
    lines = [*_conditions(result, options, context), "", *_table(result), ""]
    for precision in (FP32, INT8):
        if peer := result.fastest_peer(precision):
            fastest = result.comparisons[peer]
            lines += [
                f"Fastest peer in {precision}: {peer}; it takes {fastest.ratio:.3f} times as long as this"
                f" engine (95 % interval {fastest.low:.3f} to {fastest.high:.3f};"
                f" longer in {fastest.blocks_above_one} of {fastest.blocks} blocks).",
                "",
            ]
    if options.steps:
        lines += [*_programs(result.runners, options.steps), ""]
    if any(runner.decoding for runner in result.runners):
        lines += [*_decodings(result.runners, str(options.decoder)), ""]
    if options.plan.queries >= TAIL_QUERIES:
        lines += [_tail_line(result.runners[0].summary), ""]
    if result.tail:
        lines += [*tail_tables(result.tail), ""]
    if result.soak:
        lines += _soak_lines(result.soak)
    if result.co_run:
        lines += _co_run_lines(result.co_run)
    return "\n".join(lines)


def _conditions(result: BenchResult, options: Options, context: Context) -> list[str]:
    machine, plan = context.machine, options.plan
    cameras = ", ".join(f"{name} {size}" for name, size in context.cameras.items())
    steps = f"; steps: {options.steps}" if options.steps else ""
    note = "" if plan.queries >= TAIL_QUERIES else f" (tails are rough below {TAIL_QUERIES})"
    return [
        f"- policy: {context.policy}; cameras: {cameras}{steps}",
        f"- CPU: {machine['cpu']}; ISA: {result.isa}; threads: {result.threads};"
        f" in int8: {result.int8 or 'nothing'}",
        f"- {options.warmup} queries to warm up, then {plan.queries} timed in {plan.blocks} blocks{note}",
        f"- load average before: {machine['load_average_before']}; {machine['date']}",
        f"- command: `{machine['command']}`",
    ]


def _table(result: BenchResult) -> list[str]:
    header = (
        "Runner",
        "Precision",
        "Median ms",
        "p95 ms",
        "p99 ms",
        "n",
        "Time over this engine's",
        "Departure",
    )
    return markdown_table(header, (_row(result, runner) for runner in result.runners), text_columns=2)


def _programs(runners: Sequence[RunnerResult], steps: int) -> list[str]:
    """Where the time of a policy that iterates goes, as medians."""
    header = ("Program, median ms", "query", f"{steps} steps", "a step")
    rows = [
        (
            runner.runner,
            f"{runner.programs_ms['query']:.1f}",
            f"{runner.programs_ms['step']:.1f}",
            f"{runner.programs_ms['step'] / steps:.2f}",
        )
        for runner in runners
        if "step" in runner.programs_ms
    ]
    return markdown_table(header, rows)


def _decodings(runners: Sequence[RunnerResult], ours: str) -> list[str]:
    """How action tokens were decoded; ``ours`` is this engine's decoder."""
    header = (
        "Decoder", "Query ms", "Decoding ms", "Passes a query", "Tokens fixed a pass", "Tokens/s: least",
        "mean", "most", "in the slowest pass",
    )  # fmt: skip
    rows = []
    for place, runner in enumerate(runners):
        if (found := runner.decoding) is not None:
            rates = (found.least, found.mean, found.most, found.pass_least)
            rows.append(
                (
                    ours if place == 0 else runner.runner,
                    f"{runner.programs_ms['query']:.2f}",
                    f"{runner.programs_ms['step']:.2f}",
                    f"{found.passes:.1f}",
                    f"{found.fixed:.1f}",
                    *(f"{rate:.0f}" for rate in rates),
                )
            )
    return markdown_table(header, rows)


def _row(result: BenchResult, runner: RunnerResult) -> list[str]:
    paired = {**result.comparisons, **result.decoders}.get(runner.runner)
    ratio = f"{paired.ratio:.3f} ({paired.low:.3f} to {paired.high:.3f})" if paired else "1"
    return [
        runner.runner,
        runner.precision,
        *_summary_cells(runner.summary),
        ratio,
        f"{runner.departure:.1e}",
    ]


def _soak_lines(soak: Soak) -> list[str]:
    windows = {
        f"first {WINDOW_S:g} s": (soak.first, soak.first_reading),
        f"last {WINDOW_S:g} s": (soak.last, soak.last_reading),
    }
    header = ("Window", "Median ms", "p95 ms", "p99 ms", "n", "Temperature °C", "Clock MHz")
    rows = [
        [name, *_summary_cells(summary), _known(reading.celsius), _known(reading.mhz)]
        for name, (summary, reading) in windows.items()
    ]
    return [f"{soak.seconds:g} s without pause:", "", *markdown_table(header, rows), ""]


def _known(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"


def _tail_line(ours: Summary) -> str:
    ratio = ours.p99_ms / ours.median_ms
    verdict = "within" if ratio <= TAIL_BOUND else "beyond"
    return f"This engine's p99 is {ratio:.3f} times its median, {verdict} the bound of {TAIL_BOUND:g}."


def _co_run_lines(run: CoRun) -> list[str]:
    rows = {"nobody": run.alone, f"a busy process on CPU {run.cpu}": run.beside}
    ratio = run.comparison
    return [
        f"This engine beside another process takes {ratio.ratio:.3f} times as long"
        f" (95 % interval {ratio.low:.3f} to {ratio.high:.3f}):",
        "",
        *_summaries("Beside", rows),
        "",
    ]


def _summaries(what: str, summaries: Mapping[str, Summary]) -> list[str]:
    header = (what, "Median ms", "p95 ms", "p99 ms", "n")
    return markdown_table(header, ([name, *_summary_cells(summary)] for name, summary in summaries.items()))


def _summary_cells(summary: Summary) -> list[str]:
    times = (summary.median_ms, summary.p95_ms, summary.p99_ms)
    return [*(f"{ms:.1f}" for ms in times), str(summary.n)]
