"""The demo's results as a text table."""

from __future__ import annotations

import math

from vla_simd_ros.nodes.demo_report import CameraCount, DecodingReport, Distribution, Report

_STAGE_TITLES = {
    "transport_ms": "capture to receipt",
    "sync_ms": "frames of the other cameras",
    "wait_ms": "wait for the engine",
    "observation_age_ms": "observation age at query start",
    "preprocess_ms": "preprocess",
    "query_ms": "query program",
    "handover_ms": "hand-over between executors",
    "step_ms": "step program",
    "postprocess_ms": "postprocess",
    "total_ms": "query in total",
    "publish_ms": "publication",
    "observation_to_publish_ms": "observation to published chunk",
    "episode_ms": "episode program (once an epoch)",
}
_BUDGET_TITLES = {
    "transport_ms": "capture to receipt",
    "sync_ms": "frames of the other cameras",
    "wait_ms": "wait for the engine",
    "preprocess_ms": "preprocess",
    "query_ms": "query program",
    "handover_ms": "hand-over between executors",
    "step_ms": "step program",
    "postprocess_ms": "postprocess",
    "publish_ms": "publication",
    "delivery_ms": "publication to arrival",
    "command_ms": "arrival to command",
    "total_ms": "capture to command, measured",
    "unaccounted_ms": "not accounted for",
}
_TITLE_WIDTH = 34


def format_report(report: Report) -> str:
    """Several lines, for a terminal."""
    lines = [
        f"{'latency (ms)':<{_TITLE_WIDTH}}{'median':>9}{'p95':>9}{'p99':>9}{'n':>7}",
        *(_row(_STAGE_TITLES[stage], values) for stage, values in report.latency.items()),
        _row("observation age at command", report.observation_age),
        _row("interval between chunks", report.chunk_interval),
        "",
        *_budget(report),
        *([] if report.decoding is None else _decoding(report.decoding)),
        _fact("duration", f"{report.seconds:.1f} s"),
        _fact("queries", f"{report.queries} in {report.epochs} epochs"),
        _fact("action supply", f"{_number(report.supply_rate)} actions/s"),
        _fact("commands", f"{report.commands}, of them {report.executed_steps} rows of chunks"),
        _fact("changed by a limit", _counts(report.limited_commands)),
        _fact("stale rows dropped", str(report.stale_rows)),
        _fact("starved steps", str(report.starved_steps)),
        _fact("predicted starvation, per chunk", _number(report.starvation_probability, digits=3)),
        _fact("chunks rejected", _counts(report.chunks_rejected) or "none"),
        _fact("largest step at a splice", _number(report.largest_splice_step, digits=3)),
        _fact("execution", report.mode or "-"),
        _fact("window H and delay d (steps)", _supply(report)),
        *(_fact(f"margin of {name} (steps)", _margin(value)) for name, value in report.margins.items()),
        *(_fact(f"frames, {name}", _frames(count)) for name, count in report.cameras.items()),
        *([_fact("simulation", _stalls(report))] if report.stalls else []),
        *([_fact("advice", report.advice)] if report.advice else []),
    ]
    return "\n".join(lines)


def _row(title: str, values: Distribution) -> str:
    numbers = "".join(f"{_number(value):>9}" for value in (values.median, values.p95, values.p99))
    return f"{title:<{_TITLE_WIDTH}}{numbers}{values.count:>7}"


def _budget(report: Report) -> list[str]:
    """From observation to first command, where a chunk was executed: means, which add up to the total's."""
    if not report.budget["total_ms"].count:
        return []
    head = f"{'from capture to first command (ms)':<{_TITLE_WIDTH}}{'mean':>9}{'p95':>9}{'p99':>9}{'n':>7}"
    return [
        head,
        *(_budget_row(_BUDGET_TITLES[stage], values) for stage, values in report.budget.items()),
        "",
    ]


def _decoding(found: DecodingReport) -> list[str]:
    """How action tokens were decoded."""
    return [
        f"{'decoding of a query':<{_TITLE_WIDTH}}{'median':>9}{'p95':>9}{'p99':>9}{'n':>7}",
        _row("passes", found.passes),
        _row("tokens", found.tokens),
        _row("tokens that a pass fixed, mean", found.fixed_per_pass),
        _row("tokens/s", found.tokens_per_second),
        _fact("tokens/s of the slowest pass", _number(found.min_tokens_per_second)),
        _fact("ended by", _counts(found.exits)),
        _fact("greedy tokens", f"in {found.exact} of {found.passes.count} queries"),
        "",
    ]


def _budget_row(title: str, values: Distribution) -> str:
    numbers = "".join(f"{_number(value, 2):>9}" for value in (values.mean, values.p95, values.p99))
    return f"{title:<{_TITLE_WIDTH}}{numbers}{values.count:>7}"


def _fact(title: str, text: str) -> str:
    return f"{title:<{_TITLE_WIDTH}} {text}"


def _number(value: float, digits: int = 1) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _supply(report: Report) -> str:
    delay = report.delay_steps
    median, p95, p99 = (_number(steps) for steps in (delay.median, delay.p95, delay.p99))
    return f"H {report.window}; d median {median}, p95 {p95}, p99 {p99}"


def _margin(steps: float) -> str:
    if math.isnan(steps):
        return "-"
    return f"{steps:+.1f} ({'holds' if steps >= 0.0 else 'DOES NOT HOLD'})"


def _frames(count: CameraCount) -> str:
    sent, received = ("-" if value is None else str(value) for value in (count.sent, count.received))
    return f"{sent} sent, {received} received"


def _stalls(report: Report) -> str:
    return f"stood still {report.stalls} times, {report.given_up_s:.1f} s in all: leave the CPU to it"
