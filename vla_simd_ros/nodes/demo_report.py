"""The demo's results, from what was recorded: pure functions of the recording."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.control.budget import advice, forecast
from vla_simd_ros.control.latency_budget import STAGES as BUDGET_STAGES
from vla_simd_ros.control.schedule import Schedule
from vla_simd_ros.nodes.demo_recording import STAGES, Recording
from vla_simd_ros.nodes.policy_report import FEWER_STEPS

EXECUTING = "EXECUTING"


@dataclass(frozen=True)
class Distribution:
    """Median, upper percentiles and mean of `count` values; NaN without values, or where not known."""

    count: int
    median: float
    p95: float
    p99: float
    mean: float = math.nan


@dataclass(frozen=True)
class CameraCount:
    """Frames of one camera. None: not reported."""

    sent: int | None
    received: int | None


@dataclass(frozen=True)
class DecodingReport:
    """How the action tokens of the queries were decoded: passes, tokens and rates of a query, the slowest
    rate of a pass, why decoding ended, and how many queries gave the greedy tokens."""

    passes: Distribution
    tokens: Distribution
    fixed_per_pass: Distribution
    tokens_per_second: Distribution
    min_tokens_per_second: float
    exits: dict[str, int]
    exact: int


@dataclass(frozen=True)
class Report:
    """Results of a run. Latencies and ages in milliseconds, margins in control steps (NaN: not known);
    ``stalls`` of the simulation, which gave ``given_up_s`` up."""

    seconds: float
    queries: int
    epochs: int
    latency: dict[str, Distribution]
    budget: dict[str, Distribution]
    observation_age: Distribution
    chunk_interval: Distribution
    commands: int
    executed_steps: int
    stale_rows: int
    starved_steps: int
    limited_commands: dict[str, int]
    chunks_rejected: dict[str, int]
    mode: str
    window: int
    window_ms: float
    delay_steps: Distribution
    margins: dict[str, float]
    starvation_probability: float
    supply_rate: float
    largest_splice_step: float
    cameras: dict[str, CameraCount]
    advice: str
    decoding: DecodingReport | None = None
    stalls: int = 0
    given_up_s: float = 0.0


def distribution(values: Iterable[float]) -> Distribution:
    """Of the finite ones among `values`."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if not finite.size:
        return Distribution(0, math.nan, math.nan, math.nan)
    median, p95, p99 = (float(value) for value in np.percentile(finite, (50, 95, 99)))
    return Distribution(finite.size, median, p95, p99, float(finite.mean()))


def observation_ages(recording: Recording) -> list[tuple[int, float]]:
    """(time, milliseconds): how old the observation behind a command was when the command was given.

    Two reports about the same command count once.
    """
    ages: list[tuple[int, float]] = []
    steps = -1.0
    for report in recording.executor:
        age = report.values["executed_row_age_ms"]
        if report.state == EXECUTING and math.isfinite(age) and report.values["executed_steps"] != steps:
            steps = report.values["executed_steps"]
            ages.append((report.time, age))
    return ages


def summarize(recording: Recording, cameras: Sequence[str]) -> Report:
    """The results of a run. `cameras`: names of the cameras to count frames of."""
    last = recording.executor[-1].values if recording.executor else {}
    arrivals = np.array([chunk.arrival for chunk in recording.chunks], dtype=np.int64)

    def counter(name: str) -> int:
        return int(last.get(name, 0))

    return Report(
        seconds=recording.seconds(recording.end),
        queries=len(recording.timings),
        epochs=len({chunk.epoch for chunk in recording.chunks}),
        latency=_latency(recording),
        budget=_budget(recording),
        observation_age=distribution(age for _, age in observation_ages(recording)),
        chunk_interval=distribution(np.diff(arrivals) / 1e6),
        commands=len(recording.commands),
        executed_steps=counter("executed_steps"),
        stale_rows=counter("stale_rows_dropped"),
        starved_steps=counter("starved_steps"),
        limited_commands={
            limit: counter(f"{limit}_limited") for limit in ("position", "velocity", "acceleration")
        },
        chunks_rejected=dict(recording.executor[-1].rejections) if recording.executor else {},
        mode=recording.executor[-1].mode if recording.executor else "",
        window=recording.chunks[-1].window if recording.chunks else 0,
        window_ms=_window_ms(recording),
        delay_steps=Distribution(
            len(recording.chunks),
            *(last.get(f"delay_steps_{name}", math.nan) for name in ("median", "p95", "p99")),
        ),
        margins={
            name: last.get(field, math.nan)
            for name, field in (
                ("C1", "c1_margin_steps"),
                ("C1 at p99", "c1_margin_p99_steps"),
                ("C2", "c2_margin_steps"),
                ("C2 at p99", "c2_margin_p99_steps"),
            )
        },
        starvation_probability=last.get("starvation_probability", math.nan),
        supply_rate=last.get("action_supply_rate", math.nan),
        largest_splice_step=last.get("splice_step_max", math.nan),
        cameras={name: camera_count(recording, name) for name in cameras},
        advice=_advice(recording),
        decoding=_decoding(recording),
        stalls=int(_of_simulation(recording, "stalls")),
        given_up_s=_of_simulation(recording, "seconds given up"),
    )


def failure(report: Report) -> str:
    """Why no row of a chunk was executed, and what to try; empty when one was."""
    if report.executed_steps:
        return ""
    if not report.queries:
        return "the policy answered no query"
    if "expired" in report.chunks_rejected:
        delay = report.latency["observation_to_publish_ms"].median
        return (
            f"chunks came {delay:.0f} ms after their observation, when their rows, meant for "
            f"{report.window_ms:.0f} ms, had gone stale; use --mode lagged, or leave the CPU to the policy"
        )
    return "no row of a chunk was executed"


def _advice(recording: Recording) -> str:
    """What would keep the arm supplied, by the queries of the run; empty without any."""
    # To the publication: a delay that was injected is part of a query.
    spent = (timing.milliseconds for timing in recording.timings)
    queries_s = [(each["observation_to_publish_ms"] - each["observation_age_ms"]) * 1e-3 for each in spent]
    if not queries_s or not recording.chunks:
        return ""
    delay_s = float(np.median([chunk.arrival - chunk.stamp for chunk in recording.chunks])) * 1e-9
    last = recording.chunks[-1]
    added_s = max(0.0, delay_s - float(np.median(queries_s)))
    schedule = Schedule(1.0 / last.step_period, last.window, added_s=added_s)
    fewer_steps = any(values.get(FEWER_STEPS) == str(True) for values in recording.diagnostics.values())
    return advice(forecast(queries_s, schedule), fewer_steps)


def _latency(recording: Recording) -> dict[str, Distribution]:
    """By stage; the episode program only where it ran."""
    stages = {
        stage: distribution(timing.milliseconds[stage] for timing in recording.timings) for stage in STAGES
    }
    episodes = [timing.milliseconds["episode_ms"] for timing in recording.timings]
    stages["episode_ms"] = distribution(value for value in episodes if value > 0.0)
    return stages


def _decoding(recording: Recording) -> DecodingReport | None:
    """None where nothing was decoded."""
    found = [timing.decoding for timing in recording.timings if timing.decoding is not None]
    if not found:
        return None
    return DecodingReport(
        passes=distribution(each.passes for each in found),
        tokens=distribution(each.tokens for each in found),
        fixed_per_pass=distribution(each.fixed_per_pass for each in found),
        tokens_per_second=distribution(each.mean_tokens_per_second for each in found),
        min_tokens_per_second=min(each.min_tokens_per_second for each in found),
        exits=dict(Counter(each.exit for each in found)),
        exact=sum(each.exact for each in found),
    )


def _budget(recording: Recording) -> dict[str, Distribution]:
    """By stage from observation to first command, with what they should add up to; the means do."""
    budgets = [each.budget for each in recording.budgets]
    found = {stage: distribution(budget.stages[stage] for budget in budgets) for stage in BUDGET_STAGES}
    found["total_ms"] = distribution(budget.total_ms for budget in budgets)
    found["unaccounted_ms"] = distribution(budget.unaccounted_ms for budget in budgets)
    return found


def _window_ms(recording: Recording) -> float:
    """How long the executable rows of a chunk last."""
    if not recording.chunks:
        return math.nan
    return 1000.0 * recording.chunks[-1].window * recording.chunks[-1].step_period


def _of_simulation(recording: Recording, key: str) -> float:
    """A number of its last diagnostics; 0 where it told none."""
    return float(recording.diagnostics.get("robot_sim_node: simulation", {}).get(key, 0))


def camera_count(recording: Recording, camera: str) -> CameraCount:
    """Frames of a camera by the last diagnostics of both ends."""
    found: dict[str, int] = {}
    for values in recording.diagnostics.values():
        for kind in ("sent", "received"):
            text = values.get(f"{camera}: frames {kind}", "")
            if text.isdigit():
                found[kind] = int(text)
    return CameraCount(found.get("sent"), found.get("received"))
