"""The roofline of a core with the layers of a policy, as a picture."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.kernels import Layer
from vla_simd_ros.benchmarks.roofline import Roofline

# Distinguishable with any colour vision.
_COLORS = {
    "linear": "#0072B2",
    "conv2d": "#D55E00",
    "attention": "#009E73",
    "max_pool2d": "#CC79A7",
    "layer_norm": "#E69F00",
    "rms_norm": "#56B4E9",
}
_MARKERS = {"winograd2": "s", "winograd4": "D"}
_OTHER_MARKER = "o"
_LABELED = 8
_LEVELS = (("16 KiB", 1 << 14), ("256 KiB", 1 << 18), ("memory", 1 << 28))


def plot_roofline(layers: Sequence[Layer], roofline: Roofline, title: str, path: Path) -> None:
    """Write a PNG: executed GFLOP/s of each layer, alone, over its FLOP per byte, below the ceilings.

    A hollow mark above a convolution by Winograd's method is the rate of the direct method that it equals.
    The layers that take the most time of a query are labeled.
    """
    importlib.import_module("matplotlib").use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    shown = [layer for layer in layers if layer.kind in _COLORS and layer.work.executed]
    figure, axes = pyplot.subplots(figsize=(10, 6.5), layout="constrained")
    low = min(layer.work.intensity for layer in shown) / 1.6
    high = max(layer.work.intensity for layer in shown) * 2
    rates = [_executed_rate(layer) for layer in shown]
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(min(rates) / 2, 5 * roofline.peak_gflops))
    _draw_ceilings(axes, roofline, low, high)
    for layer in shown:
        _draw_layer(axes, layer)
    for number, layer in enumerate(_longest(shown), 1):
        _label(axes, layer, number)
    axes.set_title(title)
    axes.set_xlabel("executed FLOP per byte read or written")
    axes.set_ylabel(
        "GFLOP/s on one core" if roofline.threads == 1 else f"GFLOP/s, {roofline.threads} threads"
    )
    axes.grid(True, which="major", color="#E3E3E3")
    axes.set_axisbelow(True)
    _add_legends(axes, shown)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_ceilings(axes: Any, roofline: Roofline, low: float, high: float) -> None:
    peak = roofline.peak_gflops
    axes.plot([low, high], [peak, peak], color="black", lw=1.5)
    text = f"multiply-adds, {roofline.isa}: {peak:.0f} GFLOP/s"
    axes.annotate(text, (high / 1.05, peak), (0, 4), textcoords="offset points", fontsize=9, ha="right")
    (x0, y0), (x1, y1) = axes.transData.transform([(low, 1.0), (10 * low, 10.0)])
    angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
    for name, size in _LEVELS:
        rate = roofline.bandwidth[size]
        axes.plot([low, peak / rate], [low * rate, peak], color="#4D4D4D", lw=1, ls="--")
        text = f"{name}: {rate:.0f} GB/s"
        axes.annotate(
            text,
            (low * 1.1, low * 1.1 * rate),
            (-4, 4),
            textcoords="offset points",
            fontsize=8,
            color="#4D4D4D",
            rotation=angle,
            rotation_mode="anchor",
        )


def _draw_layer(axes: Any, layer: Layer) -> None:
    x, rate = layer.work.intensity, _executed_rate(layer)
    color, marker = _COLORS[layer.kind], _MARKERS.get(layer.algorithm, _OTHER_MARKER)
    used = layer.in_query_ms is not None
    axes.plot(x, rate, marker, color=color, ms=7, alpha=0.9 if used else 0.35, mew=0)
    if layer.work.flops != layer.work.executed:
        equals = layer.work.flops / layer.alone_ms / 1e6
        axes.plot([x, x], [rate, equals], color=color, lw=0.8, alpha=0.5)
        axes.plot(x, equals, marker, mfc="none", mec=color, ms=7, alpha=0.9 if used else 0.35)


def _label(axes: Any, layer: Layer, number: int) -> None:
    point = (layer.work.intensity, _executed_rate(layer))
    offset = (4, -11) if number % 2 else (-9, -11)
    axes.annotate(str(number), point, offset, textcoords="offset points", fontsize=8)


def _longest(layers: Sequence[Layer]) -> list[Layer]:
    """The layers that take the most time of a query, all of a shape together."""
    used = [layer for layer in layers if layer.in_query_ms is not None]
    return sorted(used, key=lambda layer: -layer.count * (layer.in_query_ms or 0))[:_LABELED]


def _executed_rate(layer: Layer) -> float:
    return layer.work.executed / layer.alone_ms / 1e6


def _add_legends(axes: Any, layers: Iterable[Layer]) -> None:
    line = importlib.import_module("matplotlib.lines").Line2D
    shown = list(layers)
    handles = [
        line([], [], color=color, marker=_OTHER_MARKER, ls="", label=kind)
        for kind, color in _COLORS.items()
        if any(layer.kind == kind for layer in shown)
    ]
    handles += [
        line([], [], color="#4D4D4D", marker=marker, ls="", label=f"{name} (hollow: as direct)")
        for name, marker in _MARKERS.items()
        if any(layer.algorithm == name for layer in shown)
    ]
    handles.append(line([], [], color="#4D4D4D", marker="o", alpha=0.35, ls="", label="pale: not chosen"))
    kinds = axes.legend(handles=handles, loc="lower right", fontsize=8)
    axes.add_artist(kinds)
    numbers = [
        line([], [], ls="", label=f"{number}  {layer.count} x {layer.kind} {layer.shape}")
        for number, layer in enumerate(_longest(shown), 1)
    ]
    axes.legend(
        handles=numbers,
        loc="lower center",
        fontsize=8,
        handlelength=0,
        handletextpad=0,
        title="longest in a query",
    )
