"""A study's table and picture: measured beside predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from vla_simd_ros.control.frame_schedule import Expected
from vla_simd_ros.nodes.demo_plot import STYLE, pyplot
from vla_simd_ros.nodes.demo_studies import StudyRow

_MEASURED, _PREDICTED, _ON_TICKS = "#D55E00", "#0072B2", "#4D4D4D"


def format_study(rows: Sequence[StudyRow]) -> str:
    """Several lines, for a terminal. Predicted values with the interval of the runs in brackets."""
    width = max(len(row.name) for row in rows) + 2
    lines = [
        f"{'':<{width}}{'starved steps (%)':<42}{'stale rows per chunk':<30}{'age at command (ms)':<30}",
        f"{'':<{width}}{'run':>7}  {'predicted':<24}{'on ticks':<9}{'run':>7}  {'predicted':<21}"
        f"{'run':>7}  {'predicted':<21}",
    ]
    for row in rows:
        found, predicted = row.measured, row.predicted
        lines.append(
            f"{row.name:<{width}}"
            f"{100 * found.starved_share:>7.2f}  {_expected(predicted.starved_share, 100):<24}"
            f"{100 * row.on_ticks.starved_share:<9.2f}"
            f"{_per_chunk(row):>7.2f}  {_expected(stale_per_chunk(row), 1):<21}"
            f"{_ms(found.mean_age_s):>7}  {_expected(predicted.mean_age_s, 1000):<21}".rstrip()
        )
    return "\n".join(lines)


def stale_per_chunk(row: StudyRow) -> Expected:
    """The predicted rows dropped per chunk."""
    chunks = row.predicted.chunks.mean
    stale = row.predicted.stale
    return Expected(stale.mean / chunks, stale.low / chunks, stale.high / chunks)


def _per_chunk(row: StudyRow) -> float:
    return row.measured.stale / row.measured.chunks if row.measured.chunks else math.nan


def _expected(value: Expected, scale: float) -> str:
    if math.isnan(value.mean):
        return "-"
    mean, low, high = (scale * number for number in (value.mean, value.low, value.high))
    digits = 0 if scale == 1000 else 2
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{1000 * seconds:.0f}"


def draw_study(rows: Sequence[StudyRow], title: str, axis_label: str, path: Path) -> None:
    """Starved share, stale rows and age over the studied value, as a PNG at `path`."""
    plt = pyplot()
    places = range(len(rows))
    panels = (
        ("Control steps without a row", "share (%)", 100.0, "starved_share"),
        ("Rows stale on arrival, per chunk", "rows", 1.0, ""),
        ("Age of the observation behind a command", "age (ms)", 1000.0, "mean_age_s"),
    )
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(15.0, 4.8), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        for axis, (name, unit, scale, field) in zip(axes, panels, strict=True):
            expected = [getattr(row.predicted, field) if field else stale_per_chunk(row) for row in rows]
            found = [getattr(row.measured, field) if field else _per_chunk(row) for row in rows]
            axis.set_title(name)
            axis.set_ylabel(unit)
            axis.errorbar(
                places,
                [scale * value.mean for value in expected],
                yerr=_bars(expected, scale),
                color=_PREDICTED,
                fmt="s",
                markersize=5,
                capsize=4,
                label="predicted, with its interval",
            )
            if field == "starved_share":
                on_ticks = [scale * row.on_ticks.starved_share for row in rows]
                axis.plot(places, on_ticks, "x", color=_ON_TICKS, label="predicted for queries on ticks")
            axis.plot(
                places, [scale * value for value in found], "o", color=_MEASURED, label="run of the nodes"
            )
            axis.set_xticks(places, [f"{row.value:g}" for row in rows])
            axis.set_xlabel(axis_label)
            axis.set_ylim(bottom=0.0)
            axis.legend(loc="best")
        figure.savefig(path, dpi=110)
        plt.close(figure)


def _bars(expected: Sequence[Expected], scale: float) -> list[list[float]]:
    """Lengths below and above the means; the mean of rare events can lie beyond what most runs have."""
    return [
        [scale * max(0.0, value.mean - value.low) for value in expected],
        [scale * max(0.0, value.high - value.mean) for value in expected],
    ]
