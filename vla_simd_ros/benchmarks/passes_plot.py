"""Passes of a language model as a picture: their times above what memory allows, and what they must fix."""

from __future__ import annotations

import importlib
from pathlib import Path

from vla_simd_ros.benchmarks.passes import PassReport
from vla_simd_ros.decoding.cached_model import SIZES

# Distinguishable with any colour vision.
_COLORS = ("black", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00")


def plot_passes(report: PassReport, title: str, path: Path) -> None:
    """Write a PNG."""
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, (times, fixed) = pyplot.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    for color, (form, passes) in zip(_COLORS, report.forms.items(), strict=False):
        times.plot(SIZES, [passes.costs.ms(n) for n in SIZES], "o-", ms=4, color=color, label=form)
        times.axhline(report.reading_ms(form), color=color, lw=0.8, ls="--")
        fixed.plot(SIZES, [passes.costs.break_even(n) for n in SIZES], "o-", ms=4, color=color, label=form)
    times.plot(
        SIZES,
        [report.multiplying_ms(n) for n in SIZES],
        color="#999999",
        lw=0.8,
        label=f"multiply-adds at {report.peak_gflops:.0f} GFLOP/s",
    )
    times.plot([], [], color="#4D4D4D", lw=0.8, ls="--", label=f"read at {report.read_gb_per_s:.0f} GB/s")
    fixed.plot(SIZES, SIZES, color="#999999", lw=0.8, label="all of them: never faster")
    times.set(xscale="log", yscale="log", xlabel="tokens in a pass", ylabel="ms", title=title)
    fixed.set(
        xscale="log",
        yscale="log",
        xlabel="tokens in a pass",
        ylabel="tokens",
        title="tokens that a pass must fix to be as fast as one by one",
    )
    for axes in (times, fixed):
        axes.set_xticks(SIZES, [str(n) for n in SIZES])
        axes.grid(True, which="major", color="#E3E3E3")
        axes.set_axisbelow(True)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
