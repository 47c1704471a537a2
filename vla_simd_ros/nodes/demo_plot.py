"""The demo's pictures: what happened over time, and one frame of each camera."""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.nodes.demo_recording import Recording
from vla_simd_ros.nodes.demo_report import observation_ages

# Distinguishable with any colour vision.
_JOINT_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_CHUNK_COLOR = "#4D4D4D"
_AGE_COLOR = "#0072B2"
_NOT_EXECUTING = {"WAITING": "#DDE6F0", "STARVED": "#F4A3A0", "HOLDING": "#F9D8A8", "STOPPED": "#C9C9C9"}
_PAUSE_S = 0.5
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E3E3E3",
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}


def pyplot() -> Any:
    """matplotlib, drawing into files."""
    importlib.import_module("matplotlib").use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def draw_timeline(recording: Recording, title: str, path: Path) -> None:
    """Commands, chunk arrivals and observation age over time, as a PNG at `path`."""
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            3, 1, figsize=(13.0, 9.5), sharex=True, layout="constrained", height_ratios=(2.2, 1.0, 1.0)
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        draw_commands(axes[0], recording)
        _draw_chunks(axes[1], recording)
        draw_ages(axes[2], recording)
        for each in axes:
            mark_epochs(each, recording)
        name_epochs(axes[0], recording)
        axes[-1].set_xlabel("time since the start of the recording (s)")
        axes[-1].set_xlim(0.0, recording.seconds(recording.end))
        figure.savefig(path, dpi=110)
        plt.close(figure)


def draw_commands(axis: Any, recording: Recording) -> None:
    """Each joint's commands and measured positions."""
    axis.set_title("Joint commands, and the measured positions (thin, dark)")
    axis.set_ylabel("joint angle (rad)")
    commanded, measured = _series(recording, "commands"), _series(recording, "joint_states")
    for index, (name, color) in enumerate(zip(recording.joint_names, _JOINT_COLORS, strict=False)):
        axis.plot(commanded[0], commanded[1][:, index], color=color, linewidth=2.0, label=name, alpha=0.85)
        axis.plot(measured[0], measured[1][:, index], color="black", linewidth=0.5, alpha=0.6)
    if recording.joint_names:
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="joint")


def _series(recording: Recording, kind: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Seconds [n] and positions [n, joints]; NaN where a pause begins, which breaks the line."""
    samples = getattr(recording, kind)
    times = np.array([recording.seconds(sample.time) for sample in samples])
    positions = np.array([sample.positions for sample in samples])
    positions = positions.reshape(len(samples), len(recording.joint_names))
    pauses = np.flatnonzero(np.diff(times) > _PAUSE_S) + 1
    return np.insert(times, pauses, times[pauses]), np.insert(positions, pauses, np.nan, axis=0)


def _draw_chunks(axis: Any, recording: Recording) -> None:
    axis.set_title("Chunk arrivals, by how long after their observation they came")
    axis.set_ylabel("delay (ms)")
    arrivals = [recording.seconds(chunk.arrival) for chunk in recording.chunks]
    delays = [(chunk.arrival - chunk.stamp) / 1e6 for chunk in recording.chunks]
    axis.vlines(arrivals, 0.0, delays, color=_CHUNK_COLOR, linewidth=1.0, alpha=0.5)
    axis.plot(arrivals, delays, "o", color=_CHUNK_COLOR, markersize=3.5, label="chunk")
    if recording.chunks:
        last = recording.chunks[-1]
        window = 1000.0 * last.window * last.step_period
        axis.axhline(window, color="#D55E00", linewidth=1.2, linestyle="--", label="window (C1)")
        axis.axhline(window / 2.0, color="#009E73", linewidth=1.2, linestyle=":", label="half of it (C2)")
    axis.set_ylim(bottom=0.0)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw_ages(axis: Any, recording: Recording) -> None:
    """How old observations were at the commands, and the times without rows."""
    axis.set_title("Age of the observation behind each command")
    axis.set_ylabel("age (ms)")
    ages = observation_ages(recording)
    times = [recording.seconds(time) for time, _ in ages]
    axis.plot(times, [age for _, age in ages], ".", color=_AGE_COLOR, markersize=2.5, label="command")
    for state, color in _NOT_EXECUTING.items():
        label: str | None = state.lower()
        for start, end in _spans(recording, state):
            axis.axvspan(start, end, color=color, linewidth=0.0, label=label)
            label = None  # one entry in the legend
    axis.set_ylim(bottom=0.0)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=4.0)


def _spans(recording: Recording, state: str) -> list[tuple[float, float]]:
    """Periods, in seconds, from each report of a state to the report after it."""
    reports = recording.executor
    return [
        (recording.seconds(report.time), recording.seconds(following.time))
        for report, following in pairwise(reports)
        if report.state == state
    ]


def mark_epochs(axis: Any, recording: Recording) -> None:
    """A line at each instruction."""
    for time, _ in recording.instructions:
        axis.axvline(recording.seconds(time), color="#666666", linewidth=1.0, linestyle=(0, (2, 2)))


def name_epochs(axis: Any, recording: Recording) -> None:
    """Each instruction beside its line."""
    for time, text in recording.instructions:
        axis.annotate(
            f"“{text}”",
            (max(0.0, recording.seconds(time)), 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(4, -4),
            textcoords="offset points",
            va="top",
            fontsize=9,
            color="#333333",
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )


def draw_frames(frames: dict[str, npt.NDArray[np.uint8]], path: Path) -> None:
    """One RGB picture [height, width, 3] of each camera, side by side, as a PNG at `path`."""
    plt = pyplot()
    with plt.rc_context({**STYLE, "axes.grid": False}):
        shape = next(iter(frames.values())).shape
        size = 6.0 * len(frames), 6.0 * shape[0] / shape[1] + 0.3
        figure, axes = plt.subplots(1, len(frames), figsize=size, layout="constrained", squeeze=False)
        for axis, (name, picture) in zip(axes[0], frames.items(), strict=True):
            axis.imshow(picture)
            axis.set_title(f"camera “{name}”, {picture.shape[1]}x{picture.shape[0]}")
            axis.set_axis_off()
        figure.savefig(path, dpi=110)
        plt.close(figure)
