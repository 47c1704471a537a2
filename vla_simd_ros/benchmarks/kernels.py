"""Each distinct operation of a query program on one core, beside that core's ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Operations of one kind and shape, and the peak of the core in GFLOP/s.

    ``alone_ms`` is the time of one of them repeated by itself, as kernels are usually measured;
    ``in_query_ms`` the mean time within a query, where its operands have to come from memory first. A
    ``narrow`` layer has fewer columns than the register tile, which it therefore cannot fill.
    """

    kind: str
    shape: str
    count: int
    rows: int
    narrow: bool
    flops: int
    alone_ms: float
    in_query_ms: float
    peak_gflops: float

    @property
    def share_alone(self) -> float:
        """Part of the peak reached alone."""
        return self.flops / self.alone_ms / 1e6 / self.peak_gflops

    @property
    def share_in_query(self) -> float:
        """Part of the peak reached within a query."""
        return self.flops / self.in_query_ms / 1e6 / self.peak_gflops

    @property
    def reaches_target(self) -> bool | None:
        """Whether a linear layer of many rows reaches its share of the peak; ``None`` for all others and
        for narrow ones."""
        if self.kind != "linear" or self.rows <= TARGET_ROWS or self.narrow:
            return None
        return self.share_alone >= TARGET_SHARE


def distinct_layers(
    in_query: Sequence[OpTime], alone_ms: Callable[[str], float], peak_gflops: float, tile_cols: int
) -> list[Layer]:
    """The linear layers, convolutions and attentions of a query, alike ones taken together.

    ``alone_ms`` measures the operation of a name by itself; it is asked for the first of each kind and shape.
    """
    alike: dict[tuple[str, str], list[OpTime]] = {}
    for op in in_query:
        if op.kind in KINDS:
            alike.setdefault((op.kind, op.shape), []).append(op)
    layers = [
        Layer(
            kind,
            shape,
            len(group),
            group[0].rows,
            group[0].cols < tile_cols,
            group[0].flops,
            alone_ms(group[0].name),
            sum(op.ms for op in group) / len(group),
            peak_gflops,
        )
        for (kind, shape), group in alike.items()
    ]
    return sorted(layers, key=lambda layer: KINDS.index(layer.kind))


def below_target(layers: Iterable[Layer]) -> list[Layer]:
    """The layers that are held to the target and miss it."""
    return [layer for layer in layers if layer.reaches_target is False]


def ceilings_table(ceilings: Ceilings) -> list[str]:
    """Markdown: what one core can do."""
    rows = [(f"FMA peak, {isa}", f"{rate:.1f} GFLOP/s") for isa, rate in ceilings.fma_gflops.items()]
    rows.append(("read bandwidth", f"{ceilings.read_gb_per_s:.1f} GB/s"))
    return markdown_table(("One core", "Measured"), rows)


def layers_table(layers: Iterable[Layer]) -> list[str]:
    """Markdown: each layer's time alone and within a query, its shares of the peak, and the verdict."""
    header = (
        "Kind",
        "Shape",
        "Verdict",
        "Ops",
        "ms alone",
        "GFLOP/s",
        "% of peak",
        "ms in query",
        "% of peak",
    )
    return markdown_table(header, (_row(layer) for layer in layers), text_columns=3)


def _verdict(layer: Layer) -> str:
    if layer.reaches_target is None:
        return "narrow" if layer.kind == "linear" and layer.rows > TARGET_ROWS else ""
    return "reached" if layer.reaches_target else "below"


def _row(layer: Layer) -> tuple[str, ...]:
    return (
        layer.kind,
        layer.shape,
        _verdict(layer),
        str(layer.count),
        f"{layer.alone_ms:.3f}",
        f"{layer.flops / layer.alone_ms / 1e6:.1f}",
        f"{100 * layer.share_alone:.1f}",
        f"{layer.in_query_ms:.3f}",
        f"{100 * layer.share_in_query:.1f}",
    )
