"""The nodes with queries back to back and just in time: freshness and computing time at equal supply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.nodes.demo_report import distribution
from vla_simd_ros.nodes.demo_series import DemoSeries, SeriesRun, Variation

# Each pacing first and last once: what the machine does meanwhile falls on both.
_ORDER = (
    QueryPacing.CONTINUOUS,
    QueryPacing.JUST_IN_TIME,
    QueryPacing.JUST_IN_TIME,
    QueryPacing.CONTINUOUS,
)
_CHUNKS_BEFORE = 60
"""More than the delays that just_in_time wants to have seen."""
_CPU_SAVED = 0.4
_STATE_RATE = 10.0
"""As usual: just in time, the policy node listens to the states, which costs time too."""


@dataclass(frozen=True)
class PacingResult:
    """What the runs of a pacing came to together; times in milliseconds, shares of one CPU.

    Ages are of the observation: as its chunk arrives, at the first command made from it, and at all of them.
    Between the first two lies the wait for a control step.
    """

    pacing: str
    seconds: float
    queries: int
    query_ms: float
    window_ms: float
    starved: int
    arrival_age_ms: float
    first_age_ms: float
    mean_age_ms: float
    cpu_share: float


def pacing_study(series: DemoSeries, seconds: float) -> list[PacingResult]:
    """Two runs of ``seconds`` of each pacing, all with one executor: the wait of a chunk for its control step
    depends on how the steps lie to the frames, by up to a control period."""
    runs: dict[QueryPacing, list[SeriesRun]] = {pacing: [] for pacing in _ORDER}
    for pacing in _ORDER:
        executor = {
            "mode": series.executor_parameter("mode", "time_aligned"),
            "state_rate": _STATE_RATE,
        }
        variation = Variation(pacing.value, {"query_pacing": pacing.value}, executor)
        begun = any(runs.values())
        runs[pacing].append(series.run(variation, seconds, _CHUNKS_BEFORE, keep_executor=begun))
    return [_result(pacing, found) for pacing, found in runs.items()]


def _result(pacing: QueryPacing, runs: Sequence[SeriesRun]) -> PacingResult:
    counts = [run.counts for run in runs]
    executed = sum(count.executed for count in counts)
    timings = [timing for run in runs for timing in run.recording.timings]
    budgets = [each.budget for run in runs for each in run.recording.budgets]
    last = runs[-1].recording.chunks[-1]
    return PacingResult(
        pacing=pacing.value,
        seconds=sum(count.seconds for count in counts),
        queries=len(timings),
        query_ms=distribution(timing.milliseconds["total_ms"] for timing in timings).median,
        window_ms=1000.0 * last.window * last.step_period,
        starved=sum(count.starved for count in counts),
        arrival_age_ms=distribution(each.total_ms - each.stages["command_ms"] for each in budgets).mean,
        first_age_ms=distribution(each.total_ms for each in budgets).mean,
        mean_age_ms=1000.0 * sum(c.mean_age_s * c.executed for c in counts) / executed
        if executed
        else math.nan,
        cpu_share=sum(count.cpu_share for count in counts) / len(counts),
    )


def format_pacing(results: Sequence[PacingResult]) -> str:
    """Several lines, for a terminal."""
    titles = (
        f"{'':<16}{'queries':>9}{'query (ms)':>12}{'starved':>9}{'age, arrival':>16}{'age, first row':>16}"
        f"{'age, all rows':>15}{'CPU s/s':>9}"
    )
    lines = [titles]
    lines += [
        f"{r.pacing:<16}{r.queries:>9}{r.query_ms:>12.1f}{r.starved:>9}{r.arrival_age_ms:>13.1f} ms"
        f"{r.first_age_ms:>13.1f} ms"
        f"{r.mean_age_ms:>12.1f} ms{r.cpu_share:>9.3f}"
        for r in results
    ]
    return "\n".join([*lines, "", *pacing_verdicts(results)])


def pacing_verdicts(results: Sequence[PacingResult]) -> list[str]:
    """What just_in_time brings and costs, against continuous."""
    by_name = {result.pacing: result for result in results}
    steady = by_name[QueryPacing.CONTINUOUS.value]
    late = by_name[QueryPacing.JUST_IN_TIME.value]
    saved = 1.0 - late.cpu_share / steady.cpu_share if steady.cpu_share else math.nan
    short = steady.query_ms < steady.window_ms / 3.0
    wanted = f"at least {_CPU_SAVED:.0%} wanted: {'holds' if saved >= _CPU_SAVED else 'DOES NOT HOLD'}"
    return [
        f"CPU time of the policy node: {saved:.0%} less ({wanted if short else 'no claim: see below'})",
        f"a query takes {steady.query_ms / steady.window_ms:.0%} of the window of {steady.window_ms:.0f} ms, "
        f"{'less' if short else 'not less'} than a third",
        f"age when a chunk arrives: {late.arrival_age_ms - steady.arrival_age_ms:+.1f} ms, "
        f"when it takes over: {late.first_age_ms - steady.first_age_ms:+.1f} ms; "
        f"mean over all rows: {late.mean_age_ms - steady.mean_age_ms:+.1f} ms "
        "(d + s / 2: fewer queries cannot make it smaller)",
    ]
