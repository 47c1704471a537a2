"""The selection of a register tile and the sweep that verifies it, as Markdown and JSON."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vla_simd_ros.benchmarks.table import markdown_table
from vla_simd_ros.tuning.tile_sweep import LinearShape, TileSpeed, rank, slower_layers
from vla_simd_ros.tuning.tiles import Candidate, Selection, Tile


def selection_lines(selection: Selection) -> list[str]:
    """Conditions, candidates with the reason against each, and the choice."""
    t = selection.target
    groups = itertools.groupby(selection.candidates, key=lambda c: (c.tile.cols, c.reason[:3]))
    return [
        f"- target: {t.name}; {t.lanes} fp32 values in each of {t.registers} registers;"
        f" per cycle {t.fmas_per_cycle} multiply-adds and {t.loads_per_cycle} loads;"
        f" latency {t.fma_latency}; left operand: {t.operand_mode}",
        f"- output widths of packed layers divide by g = {selection.divisor}",
        "",
        *markdown_table(
            ("Tile", "Verdict", "Sums", "Registers", "Loads", "Score"),
            (_candidate_row(list(group), selection) for _, group in groups),
            text_columns=2,
        ),
        "",
        f"Choice: {selection.choice}." if selection.choice else "No tile is feasible: weights stay unpacked.",
        "",
    ]


def _candidate_row(alike: Sequence[Candidate], selection: Selection) -> tuple[str, ...]:
    """One row for candidates of a width that fail alike, with the numbers of the one nearest to feasible:
    the smallest of those with too many registers, else the largest."""
    shown = alike[-1] if alike[0].reason.startswith("(2)") else alike[0]
    first, last = alike[0].tile, alike[-1].tile
    target, tile = selection.target, shown.tile
    label = str(first) if first == last else f"{first} to {last}"
    example = f" ({tile})" if first != last else ""
    return (
        label,
        shown.reason + example if shown.reason else "feasible",
        str(tile.rows * tile.vectors(target)),
        str(tile.registers(target)),
        f"{float(tile.loads(target)):g}",
        f"{float(tile.score(target)):.3f}",
    )


def sweep_lines(
    selection: Selection, shapes: Sequence[LinearShape], speeds: Sequence[TileSpeed], own: Tile
) -> list[str]:
    """GFLOP/s of every feasible tile, the fastest first; ranks of the choice and of the engine's ``own``."""
    header = ("Tile", *(str(shape) for shape in shapes), "Mean")
    rows = [
        (str(speed.tile), *(f"{rate:.1f}" for rate in speed.gflops), f"{speed.mean:.1f}") for speed in speeds
    ]
    assert selection.choice is not None
    place, share = rank(selection.choice, speeds)
    lines = [
        "GFLOP/s on one core, linear layers of rows x depth x columns:",
        "",
        *markdown_table(header, rows),
        "",
        f"The choice, {selection.choice}, ranks {place} of {len(speeds)} by the geometric mean,"
        f" at {share:.1%} of the fastest.",
    ]
    if own != selection.choice and any(speed.tile == own for speed in speeds):
        place_own, share_own = rank(own, speeds)
        lines.append(f"The engine's own tile, {own}, ranks {place_own}, at {share_own:.1%}.")
    if other := slower_layers(selection.choice, speeds):
        chosen = speeds[place - 1]
        parts = [
            f"{tile} on {shapes[layer]} by {_gain(speeds, tile, layer, chosen):.1%}"
            for layer, tile in other.items()
        ]
        lines.append(f"Faster on single layers: {', '.join(parts)}.")
    return [*lines, ""]


def _gain(speeds: Sequence[TileSpeed], tile: object, layer: int, chosen: TileSpeed) -> float:
    faster = next(speed for speed in speeds if speed.tile == tile)
    return faster.gflops[layer] / chosen.gflops[layer] - 1


def selection_json(selection: Selection) -> dict[str, Any]:
    """The selection as JSON values."""
    return {
        "target": asdict(selection.target),
        "g": selection.divisor,
        "candidates": [
            {"tile": str(c.tile), "feasible": not c.reason, "reason": c.reason} for c in selection.candidates
        ],
        "choice": str(selection.choice) if selection.choice else None,
    }


def sweep_json(shapes: Sequence[LinearShape], speeds: Sequence[TileSpeed]) -> list[dict[str, Any]]:
    """The sweep as JSON values, the fastest tile first."""
    names = [str(shape) for shape in shapes]
    return [
        {
            "tile": str(speed.tile),
            "mean_gflops": speed.mean,
            "gflops": dict(zip(names, speed.gflops, strict=True)),
        }
        for speed in speeds
    ]
