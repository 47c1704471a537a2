"""Each distinct operation of a query beside its roofline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vla_simd_ros.benchmarks.profile import OpTime
from vla_simd_ros.benchmarks.roofline import Roofline
from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.benchmarks.work import STRASSEN, Work

PRODUCTS = ("linear", "conv2d", "attention")
TARGET_SHARE = 0.85
TARGET_ROWS = 32
"""Products of more rows than this are held to ``TARGET_SHARE`` of their roofline."""
# What moves values, and what works on states that programs share.
_NEVER_ALONE = ("copy", "append", "cached_attention")


@dataclass(frozen=True)
class AloneTime:
    """One algorithm for an operation, its work, and its shortest time repeated by itself.

    ``peak_gflops`` is the processor's rate of multiply-adds just before or after, whichever was higher: its
    clock is not always the same.
    """

    algorithm: str
    work: Work
    ms: float
    peak_gflops: float


@dataclass(frozen=True)
class Layer:
    """Operations of one kind and shape, computed by one algorithm; ``count`` of them in a query.

    ``alone_ms`` is the time of one of them repeated by itself, as kernels are usually measured;
    ``in_query_ms`` the mean time within a query, None for an algorithm that the policy does not use. The
    bounds are the shortest times that the roofline allows for either: alone that of the moment. A ``narrow``
    layer has fewer columns than the register tile, which it therefore cannot fill; a layer with a ``choice``
    of algorithms has one whose products are not all of its work. ``bound_with_exponentials_ms`` is the bound
    alone of a layer that has exponentials to compute besides its products; the verdict does not depend on it.
    """

    kind: str
    shape: str
    algorithm: str
    count: int
    rows: int
    narrow: bool
    choice: bool
    work: Work
    alone_ms: float
    in_query_ms: float | None
    bound_alone_ms: float
    bound_in_query_ms: float
    bound_with_exponentials_ms: float | None = None

    @property
    def share_alone(self) -> float:
        """Part of its roofline reached alone."""
        return self.bound_alone_ms / self.alone_ms

    @property
    def share_with_exponentials(self) -> float | None:
        """Part reached alone of the roofline that counts exponentials, where there are any."""
        bound = self.bound_with_exponentials_ms
        return None if bound is None else bound / self.alone_ms

    @property
    def share_in_query(self) -> float | None:
        """Part of its roofline reached within a query."""
        return self.bound_in_query_ms / self.in_query_ms if self.in_query_ms else None

    @property
    def reaches_target(self) -> bool | None:
        """Whether a product of many rows reaches its share; ``None`` for those that are not held to it."""
        if self.kind not in PRODUCTS or self.rows <= TARGET_ROWS or self.narrow or self.choice:
            return None
        return self.share_alone >= TARGET_SHARE


def distinct_layers(
    in_query: Sequence[OpTime],
    alone: Callable[[str], Sequence[AloneTime]],
    roofline: Roofline,
    tile_cols: int,
) -> list[Layer]:
    """The operations of a query, alike ones taken together, products first.

    ``alone`` measures the operation of a name by each algorithm that can compute it; it is asked for the
    first of each kind and shape.
    """
    alike: dict[tuple[str, str], list[OpTime]] = {}
    for op in in_query:
        if op.kind not in _NEVER_ALONE:
            alike.setdefault((op.kind, op.shape), []).append(op)
    layers = [
        _layer(group, time, len(times) > 1, roofline, tile_cols)
        for group in alike.values()
        for times in [alone(group[0].name)]
        for time in times
    ]
    return sorted(layers, key=lambda layer: (*PRODUCTS, layer.kind).index(layer.kind))


def _layer(
    group: Sequence[OpTime], alone: AloneTime, choice: bool, roofline: Roofline, tile_cols: int
) -> Layer:
    first = group[0]
    used = [op.ms for op in group if op.algorithm == alone.algorithm]
    now = roofline.at_peak(alone.peak_gflops)
    return Layer(
        first.kind,
        first.shape,
        alone.algorithm,
        sum(op.runs for op in group),
        first.rows,
        first.cols < tile_cols,
        choice and (first.kind != "linear" or alone.algorithm == STRASSEN),
        alone.work,
        alone.ms,
        sum(used) / len(used) if used else None,
        now.alone_ms(alone.work),
        roofline.in_query_ms(alone.work),
        now.with_exponentials_ms(alone.work) if alone.work.exponentials else None,
    )


def below_target(layers: Iterable[Layer]) -> list[Layer]:
    """The layers that are held to the target and miss it."""
    return [layer for layer in layers if layer.reaches_target is False]


def layers_table(layers: Iterable[Layer]) -> list[str]:
    """Markdown: each layer's work, its roofline, its time alone and within a query, and its shares."""
    header = (
        "Kind",
        "Shape",
        "Algorithm",
        "Verdict",
        "Ops",
        "MFLOP",
        "MB",
        "FLOP/B",
        "Roofline GFLOP/s",
        "ms alone",
        "GFLOP/s",
        "executed",
        "% of roofline",
        "with exponentials",
        "ms in query",
        "% of roofline",
    )
    return markdown_table(header, (_row(layer) for layer in layers), text_columns=4)


def _verdict(layer: Layer) -> str:
    if layer.reaches_target is None:
        return "narrow" if layer.kind == "linear" and layer.narrow and layer.rows > TARGET_ROWS else ""
    return "reached" if layer.reaches_target else "below"


def _row(layer: Layer) -> tuple[str, ...]:
    work = layer.work
    used = layer.in_query_ms is not None
    return (
        layer.kind,
        layer.shape,
        layer.algorithm if layer.choice else "",
        _verdict(layer),
        str(layer.count),
        f"{work.flops / 1e6:.1f}",
        f"{work.nbytes / 1e6:.2f}",
        f"{work.intensity:.1f}",
        f"{_rate(work.executed, layer.bound_alone_ms):.1f}",
        f"{layer.alone_ms:.3f}",
        f"{_rate(work.flops, layer.alone_ms):.1f}",
        f"{_rate(work.executed, layer.alone_ms):.1f}",
        f"{100 * layer.share_alone:.1f}",
        _percent(layer.share_with_exponentials),
        f"{layer.in_query_ms:.3f}" if used else "",
        _percent(layer.share_in_query),
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _rate(flops: int, ms: float) -> float:
    return flops / ms / 1e6 if ms else 0.0
