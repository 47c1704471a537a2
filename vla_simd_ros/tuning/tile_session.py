"""The selection of a register tile from start to end: compile, select, and measure where that is possible."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.benchmarks.conditions import describe_machine
from vla_simd_ros.tuning.kernel_build import BuildError, KernelBuild, cross_compiler
from vla_simd_ros.tuning.spills import SpillCheck
from vla_simd_ros.tuning.target import Target
from vla_simd_ros.tuning.tile_report import selection_json, selection_lines, sweep_json, sweep_lines
from vla_simd_ros.tuning.tile_sweep import RUNS, LinearShape, TileTimer, sweep
from vla_simd_ros.tuning.tiles import Selection, Spills, Tile, feasible_tiles, select_tile

Say = Callable[[str], None]


@dataclass(frozen=True)
class TileTask:
    """What to choose a tile for; ``shapes`` are the linear layers that tiles are measured on."""

    target: Target
    widths: Sequence[int]
    shapes: Sequence[LinearShape]


def tune_tiles(task: TileTask, say: Say) -> tuple[dict[str, Any], str]:
    """Select and measure: JSON values and Markdown. Raises BuildError where kernels cannot be compiled.

    Without a compiler for the target the constraints alone select, and the text says so.
    """
    try:
        cross_compiler(task.target.architecture)
    except BuildError as error:
        return _unchecked(task, str(error))
    with tempfile.TemporaryDirectory(prefix="vla_simd_tiles_") as folder:
        build = KernelBuild(task.target, Path(folder))
        spills = SpillCheck(task.target, build)
        selection = select_tile(task.target, task.widths, _announced(spills, say))
        report: dict[str, Any] = {**selection_json(selection), "machine": describe_machine()}
        lines = selection_lines(selection)
        if not _runs_here(task.target):
            lines += [
                f"{task.target.isa} does not run on this {platform.machine()}: nothing is measured.",
                "",
            ]
        elif selection.choice:
            say("measuring every feasible tile")
            lines += _measure(task, selection, spills, build, report)
    return report, "\n".join(lines)


def _measure(
    task: TileTask, selection: Selection, spills: SpillCheck, build: KernelBuild, report: dict[str, Any]
) -> list[str]:
    tiles = feasible_tiles(task.target, selection.divisor, spills)
    speeds = sweep(tiles, task.shapes, TileTimer(task.target, build, spills.object_file, task.shapes))
    report["sweep"] = sweep_json(task.shapes, speeds)
    machine = report["machine"]
    conditions = f"{machine['cpu']}, load average before {machine['load_average_before']}, {machine['date']}"
    return [
        f"Measured on {conditions}; the shortest of {RUNS} runs each.",
        "",
        *sweep_lines(selection, task.shapes, speeds, _own_tile(task.target)),
    ]


def _own_tile(target: Target) -> Tile:
    """The tile that the engine is built with."""
    from vla_simd_ros import _engine

    return Tile(*_engine.Engine(threads=1, isa=target.isa).tile)


def _unchecked(task: TileTask, why: str) -> tuple[dict[str, Any], str]:
    selection = select_tile(task.target, task.widths, lambda _: ())
    lines = [
        *selection_lines(selection),
        f"Spills were not checked, so a tile above may be slow in fact: {why}.",
        "",
    ]
    return {**selection_json(selection), "spills_unchecked": why}, "\n".join(lines)


def _runs_here(target: Target) -> bool:
    if target.architecture != platform.machine():
        return False
    from vla_simd_ros import _engine

    return target.isa in _engine.available_isas()


def _announced(spills: Spills, say: Say) -> Spills:
    def check(tile: Any) -> Sequence[str]:
        say(f"compiling the tile {tile}")
        return spills(tile)

    return check
