"""The two tables of a study of decoders, and its file: components on and off, and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.evaluation.decoder_study import AUTOREGRESSIVE, EARLY_EXIT, Arm, Row
from vla_simd_ros.evaluation.intervals import paired_difference

_FIGURES = (
    "Speed-up, decoding",
    "Speed-up, actions",
    "Actions/s",
    "Passes",
    "Tokens a pass",
    "Tokens/s: least",
    "mean",
    "most",
    "Success",
    "95 % interval",
    "Points over the first",
)


def tables(rows: Sequence[Row], sigma: float, sigmas: Sequence[float], chunk: int) -> str:
    """Markdown; ``chunk`` are the rows of actions that a query gives."""
    base = rows[0]
    exits = {row.arm.decoder.sigma: row for row in rows if row.arm.decoder.decoder == EARLY_EXIT}
    components = [*(row for row in rows if row.arm.decoder.decoder != EARLY_EXIT), exits[sigma]]
    lines = markdown_table(
        ["Parallel decoding", "Distillation", "Early exit", *_FIGURES],
        [[*_components(row.arm), *_figures(row, base, chunk)] for row in components],
        text_columns=3,
    )
    lines += ["", *markdown_table(
        ["Threshold", *_FIGURES],
        [[f"sigma = {each:g}", *_figures(exits[each], base, chunk)] for each in sigmas],
    )]  # fmt: skip
    return "\n".join(lines)


def _components(arm: Arm) -> list[str]:
    decoder = arm.decoder
    parallel = "no" if decoder.decoder == AUTOREGRESSIVE else "Jacobi"
    return [parallel, arm.training, f"sigma {decoder.sigma:g}" if decoder.decoder == EARLY_EXIT else "no"]


def _figures(row: Row, base: Row, chunk: int) -> list[str]:
    speed, success = row.speed, row.outcome.success
    least, mean, most = speed.tokens_per_second
    return [
        f"{mean / base.speed.tokens_per_second[1]:.2f}x",
        f"{base.speed.mean_query_ms / speed.mean_query_ms:.2f}x",
        f"{1e3 * chunk / speed.mean_query_ms:.0f}",
        f"{speed.mean_passes:.2f}",
        f"{speed.fixed_per_pass:.1f}",
        *(f"{rate:.0f}" for rate in (least, mean, most)),
        f"{success.successes}/{success.trials} {success.share:.1%}",
        f"{success.low:.1%} to {success.high:.1%}",
        _points(row, base),
    ]


def _points(row: Row, base: Row) -> str:
    if row is base:
        return ""
    found = _difference(row, base)
    return f"{found.difference * 100:+.1f} ({found.low * 100:+.1f} to {found.high * 100:+.1f})"


def _difference(row: Row, base: Row) -> Any:
    flags = ([result.success for result in each.outcome.results] for each in (row, base))
    return paired_difference(*flags)


def to_json(rows: Sequence[Row], measured_with: dict[str, Any], chunk: int) -> dict[str, Any]:
    """Everything: what the tables say, and each episode and each observation."""
    base = rows[0]
    return {
        "measured_with": measured_with,
        "rows": [
            {
                "distillation": row.arm.training,
                "decoder": asdict(row.arm.decoder),
                "success": asdict(row.outcome.success),
                "points_over_first": asdict(_difference(row, base)),
                "speed_up_decoding": row.speed.tokens_per_second[1] / base.speed.tokens_per_second[1],
                "speed_up_actions": base.speed.mean_query_ms / row.speed.mean_query_ms,
                "actions_per_second": 1e3 * chunk / row.speed.mean_query_ms,
                "mean_passes": row.speed.mean_passes,
                "fixed_per_pass": row.speed.fixed_per_pass,
                "tokens_per_second": dict(
                    zip(("least", "mean", "most"), row.speed.tokens_per_second, strict=True)
                ),
                "observations": asdict(row.speed),
                "episodes": [
                    {**asdict(result.episode), "success": result.success, "steps": result.steps}
                    for result in row.outcome.results
                ],
            }
            for row in rows
        ],
    }
