"""Each distinct operation of a query program on one core, beside that core's ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.benchmarks.table import markdown_table

KINDS = ("linear", "conv2d", "attention")
TARGET_SHARE = 0.85
TARGET_ROWS = 32
"""Linear layers with more rows than this are held to ``TARGET_SHARE`` of the peak."""


@dataclass(frozen=True)
class Ceilings:
    """Of one core: GFLOP/s of fused multiply-adds by instruction set, and GB/s read from memory."""

    fma_gflops: Mapping[str, float]
    read_gb_per_s: float


@dataclass(frozen=True)
class Layer:
    """Operations of one kind and shape; ``ms`` is the mean of their shortest times."""

    kind: str
    shape: str
    count: int
    rows: int
    ms: float
    gflops_per_s: float
    share_of_peak: float

    @property
    def reaches_target(self) -> bool | None:
        """Whether a linear layer of many rows reaches its share of the peak; ``None`` for all others."""
        if self.kind != "linear" or self.rows <= TARGET_ROWS:
            return None
        return self.share_of_peak >= TARGET_SHARE


def distinct_layers(ops: Sequence[OpTime], peak_gflops: float) -> list[Layer]:
    """The linear layers, convolutions and attentions among ``ops``, alike ones taken together."""
    alike: dict[tuple[str, str], list[OpTime]] = {}
    for op in ops:
        if op.kind in KINDS:
            alike.setdefault((op.kind, op.shape), []).append(op)
    layers = [_layer(kind, shape, group, peak_gflops) for (kind, shape), group in alike.items()]
    return sorted(layers, key=lambda layer: KINDS.index(layer.kind))


def _layer(kind: str, shape: str, group: Sequence[OpTime], peak_gflops: float) -> Layer:
    ms = sum(op.ms for op in group) / len(group)
    rate = group[0].flops / ms / 1e6
    return Layer(kind, shape, len(group), group[0].rows, ms, rate, rate / peak_gflops)


def below_target(layers: Iterable[Layer]) -> list[Layer]:
    """The layers that are held to the target and miss it."""
    return [layer for layer in layers if layer.reaches_target is False]


def ceilings_table(ceilings: Ceilings) -> list[str]:
    """Markdown: what one core can do."""
    rows = [(f"FMA peak, {isa}", f"{rate:.1f} GFLOP/s") for isa, rate in ceilings.fma_gflops.items()]
    rows.append(("read bandwidth", f"{ceilings.read_gb_per_s:.1f} GB/s"))
    return markdown_table(("One core", "Measured"), rows)


def layers_table(layers: Iterable[Layer]) -> list[str]:
    """Markdown: each layer's time, rate and share of the peak, and whether it reaches the target."""
    header = ("Kind", "Shape", "Verdict", "Ops", "ms", "GFLOP/s", "% of peak")
    verdicts = {None: "", True: "reached", False: "below"}
    rows = [
        (
            layer.kind,
            layer.shape,
            verdicts[layer.reaches_target],
            str(layer.count),
            f"{layer.ms:.3f}",
            f"{layer.gflops_per_s:.1f}",
            f"{100 * layer.share_of_peak:.1f}",
        )
        for layer in layers
    ]
    return markdown_table(header, rows, text_columns=3)
