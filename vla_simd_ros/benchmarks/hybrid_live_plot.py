"""A live run as a picture: the cut, the interval, the stages and the load over time."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.hybrid_live import LiveRun, Schedule

# Distinguishable with any colour vision.
_MOVED, _FIXED, _PREFIX, _SUFFIX, _LOAD = "#0072B2", "#999999", "#D55E00", "#009E73", "#E69F00"


def plot_live(runs: Sequence[LiveRun], schedule: Schedule, title: str, path: Path) -> None:
    """Write a PNG. The first run is the one whose cut moved; the best of the others is drawn beside it."""
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    moved, *others = runs
    figure, axes = pyplot.subplots(4, 1, figsize=(10, 10), sharex=True, layout="constrained")
    for axis in axes:
        _shade(axis, schedule)
        axis.grid(True, color="#E3E3E3")
        axis.set_axisbelow(True)
    times = [frame.at_s for frame in moved.frames]
    axes[0].step(times, [frame.blocks for frame in moved.frames], where="post", color=_MOVED)
    axes[0].set_ylabel("blocks of the prefix")
    axes[0].set_title(title)
    if others:
        best = min(others, key=lambda run: run.interval_s())
        axes[1].plot(*_intervals(best), color=_FIXED, label=f"best fixed cut, {best.fixed} blocks")
    axes[1].plot(*_intervals(moved), color=_MOVED, label="moved")
    axes[1].set_ylabel("from result to result (ms)")
    for name, color in (("prefix", _PREFIX), ("suffix", _SUFFIX)):
        values = [getattr(frame, f"{name}_s") * 1e3 for frame in moved.frames]
        axes[2].plot(times, values, color=color, label=name)
    axes[2].set_ylabel("stage (ms)")
    axes[3].step(times, [frame.load for frame in moved.frames], where="post", color=_LOAD, label="put on")
    seen = [(frame.at_s, frame.seen) for frame in moved.frames if frame.seen is not None]
    if seen:
        axes[3].plot(
            *zip(*seen, strict=True), color="#000000", linewidth=0.8, label="seen on the suffix's cores"
        )
    axes[3].set(ylabel=f"load of the {schedule.side}'s cores", ylim=(-0.05, 1.35), xlabel="seconds")
    for axis in axes[1:]:
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
        axis.legend(loc="upper right", ncols=2)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _shade(axis: Any, schedule: Schedule) -> None:
    for index, load in enumerate(schedule.loads):
        start = index * schedule.phase_s
        axis.axvspan(start, start + schedule.phase_s, color=_LOAD, alpha=0.25 * load, linewidth=0)


def _intervals(run: LiveRun) -> tuple[list[float], list[float]]:
    ends = [frame.at_s for frame in run.frames]
    return ends[1:], [(later - earlier) * 1e3 for earlier, later in pairwise(ends)]
