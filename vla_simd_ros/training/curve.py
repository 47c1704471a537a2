"""Draws the losses of a training run."""

from __future__ import annotations

from pathlib import Path

from vla_simd_ros.training.trainer import read_log

CURVE = "loss.png"
_LINES = {
    "l1": "L1, training",
    "held_out_l1": "L1, held-out episodes",
    "kl": "KL divergence",
    "cross_entropy": "cross-entropy of the tokens",
    "consistency": "consistency (KL divergence)",
}


def draw_curve(log: Path, picture: Path) -> None:
    """A PNG of the log's losses over the samples seen; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = list(read_log(log))
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, label in _LINES.items():
        points = [(int(row["samples"]), float(row[name])) for row in rows if row.get(name)]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, linewidth=1.2)
    axes.set(xlabel="samples", ylabel="loss (L1: standard deviations of the action)", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)
