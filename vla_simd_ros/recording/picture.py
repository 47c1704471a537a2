"""A recorded run as one picture: what happened when, how old it was, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.control.latency_budget import STAGES
from vla_simd_ros.nodes.demo_plot import STYLE, draw_ages, draw_commands, mark_epochs, name_epochs, pyplot
from vla_simd_ros.nodes.demo_report import Report, observation_ages
from vla_simd_ros.recording.run import Run
from vla_simd_ros.recording.starvation_causes import Cause, Starvation

_CAUSE_COLORS = {
    Cause.CAMERA_LATE: "#E69F00",
    Cause.ENGINE_SLOW: "#D55E00",
    Cause.TRANSPORT: "#CC79A7",
    Cause.REJECTED: "#56B4E9",
    Cause.UNKNOWN: "#999999",
}
_STAGE_COLORS = (
    "#56B4E9", "#9AD0F0", "#C9C9C9", "#F2D27A", "#0072B2",
    "#7FB2DB", "#3A94C9", "#E69F00", "#E7A9CC", "#CC79A7", "#009E73",
)  # fmt: skip
_QUERY_COLORS, _CHUNK_COLORS = ("#0072B2", "#5BA9D6"), ("#009E73", "#6CC7AB")
_TICK_COLOR = "#4D4D4D"
_BAR = 0.62
_DETAIL_BEFORE_S, _DETAIL_AFTER_S = 0.8, 1.7


def draw_run(run: Run, report: Report, found: Sequence[Starvation], title: str, path: Path) -> None:
    """The whole picture, as a PNG at `path`."""
    plt = pyplot()
    recording = run.recording
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(14.0, 17.5), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        grid = figure.add_gridspec(5, 2, height_ratios=(1.3, 1.5, 1.0, 1.3, 1.1))
        overview = figure.add_subplot(grid[0, :])
        commands = figure.add_subplot(grid[1, :], sharex=overview)
        ages = figure.add_subplot(grid[2, :], sharex=overview)
        detail = figure.add_subplot(grid[3, :])
        _draw_events(overview, run, "Observations, queries, chunks and commands")
        draw_commands(commands, recording)
        draw_ages(ages, recording)
        start, end = _detail(run, found)
        _draw_events(detail, run, f"The same from {start:.1f} to {end:.1f} s")
        for axis in (overview, commands, detail):
            _draw_starvations(axis, run, found)
        for axis in (overview, commands, ages, detail):
            mark_epochs(axis, recording)
        if found:
            for axis in (overview, detail):
                axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        name_epochs(commands, recording)
        overview.set_xlim(0.0, max(recording.seconds(recording.end), 1e-3))
        detail.set_xlim(start, end)
        for axis in (ages, detail):
            axis.set_xlabel("time since the start of the recording (s)")
        _draw_histogram(figure.add_subplot(grid[4, 0]), run)
        _draw_budget(figure.add_subplot(grid[4, 1]), report)
        figure.savefig(path, dpi=100)
        plt.close(figure)


def _detail(run: Run, found: Sequence[Starvation]) -> tuple[float, float]:
    """Seconds around the first starvation, else in the middle."""
    recording = run.recording
    length = recording.seconds(recording.end)
    at = recording.seconds(found[0].start) if found else length / 2.0
    start = max(0.0, at - _DETAIL_BEFORE_S)
    return start, max(min(length, start + _DETAIL_BEFORE_S + _DETAIL_AFTER_S), start + 1e-3)


def _draw_events(axis: Any, run: Run, title: str) -> None:
    """One lane for each kind of event, from top to bottom as one leads to the next."""
    axis.set_title(title)
    lanes = [(f"frames\n{topic}", [stamp for stamp, _ in frames]) for topic, frames in run.frames.items()]
    recording = run.recording
    names = [name for name, _ in lanes] + ["queries", "rows of chunks", "commands"]
    height = dict(zip(names, range(len(names) - 1, -1, -1), strict=True))
    for name, stamps in [*lanes, ("commands", [command.time for command in recording.commands])]:
        times = [recording.seconds(stamp) for stamp in stamps]
        axis.plot(times, [height[name]] * len(times), "|", color=_TICK_COLOR, markersize=11, alpha=0.7)
    _draw_queries(axis, run, height["queries"])
    _draw_chunks(axis, run, height[names[-2]])
    axis.set_yticks(list(height.values()), list(height))
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.grid(axis="y", visible=False)


def _draw_queries(axis: Any, run: Run, lane: int) -> None:
    """From the start of each query to the publication of its chunk."""
    recording = run.recording
    bars = []
    for timing in recording.timings:
        spent = timing.milliseconds
        length = (spent["observation_to_publish_ms"] - spent["observation_age_ms"]) * 1e-3
        bars.append((recording.seconds(timing.stamp) + spent["observation_age_ms"] * 1e-3, length))
    _draw_bars(axis, bars, lane, _QUERY_COLORS)


def _draw_chunks(axis: Any, run: Run, lane: int) -> None:
    """From the arrival of each chunk to that of the next one, or to the end of its rows."""
    recording = run.recording
    arrivals = [recording.seconds(chunk.arrival) for chunk in recording.chunks]
    bars = []
    for chunk, arrival, following in zip(recording.chunks, arrivals, [*arrivals, np.inf][1:], strict=True):
        end = min(recording.seconds(chunk.stamp) + chunk.window * chunk.step_period, following)
        bars.append((arrival, max(0.0, end - arrival)))
    _draw_bars(axis, bars, lane, _CHUNK_COLORS)


def _draw_bars(axis: Any, bars: Sequence[tuple[float, float]], lane: int, colors: tuple[str, str]) -> None:
    """Neighbours in different shades: edges would hide bars that are narrower than a pixel."""
    shades = [colors[index % 2] for index in range(len(bars))]
    axis.broken_barh(bars, (lane - _BAR / 2, _BAR), facecolors=shades, linewidth=0.0)


def _draw_starvations(axis: Any, run: Run, found: Sequence[Starvation]) -> None:
    named: set[Cause] = set()
    for each in found:
        label = None if each.cause in named else f"starved: {each.cause.value}"
        named.add(each.cause)
        start, end = run.recording.seconds(each.start), run.recording.seconds(each.end)
        color = _CAUSE_COLORS[each.cause]
        axis.axvspan(start, end, color=color, alpha=0.35, linewidth=0.0, label=label, zorder=0.5)


def _draw_histogram(axis: Any, run: Run) -> None:
    axis.set_title("Age of the observation behind each command")
    axis.set_xlabel("age (ms)")
    axis.set_ylabel("commands")
    ages = [age for _, age in observation_ages(run.recording)]
    if not ages:
        return
    axis.hist(ages, bins=40, color=_QUERY_COLORS[0], edgecolor="white", linewidth=0.4)
    for share, style in ((50, "-"), (99, "--")):
        value = float(np.percentile(ages, share))
        label = f"{'median' if share == 50 else 'p99'} {value:.0f} ms"
        axis.axvline(value, color="#D55E00", linestyle=style, linewidth=1.4, label=label)
    axis.legend()


def _draw_budget(axis: Any, report: Report) -> None:
    """The means of the stages, one after the other."""
    total = report.budget["total_ms"]
    axis.set_title("From capture to first command: mean of each stage")
    axis.set_xlabel("milliseconds")
    if not total.count:
        axis.text(0.5, 0.5, "no latency_budget in the recording", ha="center", transform=axis.transAxes)
        axis.set_yticks([])
        return
    left = 0.0
    names = [stage.removesuffix("_ms") for stage in STAGES]
    for index, stage in enumerate(STAGES):
        mean = report.budget[stage].mean
        axis.barh(index, mean, left=left, color=_STAGE_COLORS[index], height=0.8)
        axis.text(left + max(mean, 0.0), index, f" {mean:.1f}", va="center", fontsize=8)
        left += mean
    axis.axvline(total.mean, color=_TICK_COLOR, linewidth=1.2, label=f"measured total {total.mean:.1f}")
    axis.set_xlim(0.0, 1.12 * max(left, total.mean))
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.legend(loc="lower left")
