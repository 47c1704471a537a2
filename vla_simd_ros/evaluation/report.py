"""The tables and the file of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.evaluation.intervals import Difference, Proportion, paired_difference
from vla_simd_ros.evaluation.pilot import Decoding
from vla_simd_ros.evaluation.rollout import Result
from vla_simd_ros.evaluation.session import Outcome, labels

_EXAMPLES = 5


def tables(outcomes: Sequence[Outcome]) -> str:
    """Markdown: conditions, then instructions, then why episodes failed."""
    names = labels([outcome.condition for outcome in outcomes])
    lines = [*_conditions(outcomes, names), "", *_instructions(outcomes, names)]
    for name, outcome in zip(names, outcomes, strict=True):
        failed = [result for result in outcome.results if not result.success]
        if failed:
            lines += [
                "",
                f"Failures of {name} (the first {min(len(failed), _EXAMPLES)} of {len(failed)}):",
                "",
            ]
            lines += [_failure(result) for result in failed[:_EXAMPLES]]
    return "\n".join(lines)


def _conditions(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    header = [
        "Condition", "Successes", "Success %", "95 % interval", "Time to success (s)", "Other goal",
        "Query (ms)", "Starved steps",
    ]  # fmt: skip
    columns = [
        [
            name,
            f"{outcome.success.successes}/{outcome.success.trials}",
            *_percent(outcome.success),
            _seconds(outcome),
            f"{outcome.elsewhere.successes}",
            _number(float(np.median([result.counts.query_ms for result in outcome.results])), ".1f"),
            _share_starved(outcome.results),
        ]
        for name, outcome in zip(names, outcomes, strict=True)
    ]
    decodings = [_decodings(outcome.results) for outcome in outcomes]
    if any(decodings):
        header += ["Passes a query", "Tokens a pass", "Tokens/s: least", "mean", "most"]
        for column, found in zip(columns, decodings, strict=True):
            column.extend(_decoding_cells(found))
    if any(outcome.condition.shuffled for outcome in outcomes):
        header.append("Original goal %")
        for column, outcome in zip(columns, outcomes, strict=True):
            column.append(" ".join(_percent(outcome.original)) if outcome.original else "")
    if len(outcomes) > 1:
        header.append("Points over the first")
        for column, difference in zip(columns, _differences(outcomes), strict=True):
            column.append(_points(difference))
    return markdown_table(header, columns)


def _decodings(results: Sequence[Result]) -> list[tuple[int, Decoding]]:
    """The number of queries and their decoding, of each episode that has some."""
    counts = [result.counts for result in results]
    return [(each.queries, each.decoding) for each in counts if each.decoding is not None]


def _decoding_cells(found: Sequence[tuple[int, Decoding]]) -> list[str]:
    if not found:
        return [""] * 5
    queries = sum(count for count, _ in found)
    passes, tokens, seconds = (
        sum(getattr(decoding, name) for _, decoding in found) for name in ("passes", "tokens", "seconds")
    )
    slowest = min(decoding.slowest for _, decoding in found)
    fastest = max(decoding.fastest for _, decoding in found)
    rates = (slowest, tokens / seconds, fastest)
    return [f"{passes / queries:.1f}", f"{tokens / passes:.1f}", *(f"{rate:.0f}" for rate in rates)]


def _differences(outcomes: Sequence[Outcome]) -> list[Difference | None]:
    """Of each condition from the first one with the same episodes; None for that itself."""
    found: list[Difference | None] = []
    for place, outcome in enumerate(outcomes):
        episodes = [result.episode for result in outcome.results]
        base = next(each for each in outcomes if [result.episode for result in each.results] == episodes)
        if base is outcomes[place]:
            found.append(None)
        else:
            found.append(paired_difference(_flags(outcome), _flags(base)))
    return found


def _flags(outcome: Outcome) -> list[bool]:
    return [result.success for result in outcome.results]


def _instructions(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    texts = dict.fromkeys(result.episode.instruction for each in outcomes for result in each.results)
    rows = [[text, *(_cell(outcome.of(text)) for outcome in outcomes)] for text in texts]
    return markdown_table(["Successes by instruction", *names], rows)


def _cell(found: Proportion | None) -> str:
    return "" if found is None else f"{found.successes}/{found.trials} {_percent(found)[1]}"


def _failure(result: Result) -> str:
    episode = result.episode
    return f"- seed {episode.seed}, '{episode.instruction}': {result.failure}"


def _percent(found: Proportion) -> tuple[str, str]:
    return f"{found.share:.1%}".rstrip("%"), f"[{found.low * 100:.1f}, {found.high * 100:.1f}]"


def _points(found: Difference | None) -> str:
    if found is None:
        return ""
    return f"{found.difference * 100:+.1f} [{found.low * 100:+.1f}, {found.high * 100:+.1f}]"


def _seconds(outcome: Outcome) -> str:
    times = [result.steps * outcome.period_s for result in outcome.results if result.success]
    return f"{np.median(times):.1f}" if times else ""


def _share_starved(results: Sequence[Result]) -> str:
    starved = sum(result.counts.starved_steps for result in results)
    steps = sum(result.counts.executed_rows for result in results) + starved
    return f"{starved / steps:.1%}" if steps else ""


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def to_json(outcomes: Sequence[Outcome], measured_with: dict[str, Any]) -> dict[str, Any]:
    """Everything, the episodes one by one; ``measured_with`` tells machine and checkpoints."""
    names = labels([outcome.condition for outcome in outcomes])
    differences = _differences(outcomes)
    return {
        "measured_with": measured_with,
        "conditions": [
            {
                "name": name,
                "settings": asdict(outcome.condition),
                "control_period_s": outcome.period_s,
                "success": asdict(outcome.success),
                "original_goal": asdict(outcome.original) if outcome.original else None,
                "other_goal": asdict(outcome.elsewhere),
                "difference_from_first": asdict(difference) if difference else None,
                "episodes": [_episode(result) for result in outcome.results],
            }
            for name, outcome, difference in zip(names, outcomes, differences, strict=True)
        ],
    }


def _episode(result: Result) -> dict[str, Any]:
    counts = asdict(result.counts)
    return {
        **asdict(result.episode),
        "success": result.success,
        "steps": result.steps,
        "reached": sorted(result.reached),
        "failure": result.failure,
        **{name: None if value != value else value for name, value in counts.items()},
        "state": {name: [float(value) for value in values] for name, values in result.state.items()},
    }
