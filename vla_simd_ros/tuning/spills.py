"""Whether a tile, compiled as the engine compiles it, keeps its sums in registers."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

from vla_simd_ros.tuning.hot_loop import Loop, hot_loop
from vla_simd_ros.tuning.kernel_build import KernelBuild
from vla_simd_ros.tuning.target import Target
from vla_simd_ros.tuning.tiles import Tile

FETCHED_LINES = (1, 4)
"""Each tile is compiled for fetching this many lines ahead in four steps,"""

WEIGHTS = ("float", "vla::Bf16")
"""and for weights of these types."""


class SpillCheck:
    """Compiles tiles and looks at their inner loops; each tile once."""

    def __init__(self, target: Target, build: KernelBuild) -> None:
        self._target = target
        self._build = build
        self._compiled = cache(self._compile)
        self._checked = cache(self._check)

    def __call__(self, tile: Tile) -> tuple[str, ...]:
        """What the compiled loop of the tile does that it should not; see :func:`faults`."""
        return self._checked(tile)

    def object_file(self, tile: Tile) -> Path:
        """The compiled tile."""
        return self._compiled(tile)

    def _compile(self, tile: Tile) -> Path:
        return self._build.compile("kernels/tile.cpp", f"tile_{tile}.o", tile_defines(tile, self._target))

    def _check(self, tile: Tile) -> tuple[str, ...]:
        disassembly = self._build.disassemble(self.object_file(tile))
        size = f"{tile.rows}, {tile.vectors(self._target)}"
        found = [
            fault
            for lines, weights in itertools.product(FETCHED_LINES, WEIGHTS)
            for fault in faults(
                hot_loop(disassembly, f"::tile<{size}, {lines}, {weights}>("), tile, self._target
            )
        ]
        return tuple(dict.fromkeys(found))


def tile_defines(tile: Tile, target: Target) -> list[str]:
    """The macros that give kernel sources this tile instead of their own."""
    return [f"VLA_TILE_ROWS={tile.rows}", f"VLA_TILE_VECS={tile.vectors(target)}"]


def int8_faults(build: KernelBuild, variant: str, tile: Tile, target: Target) -> list[str]:
    """The same for the register tile of a variant of the INT8 kernels."""
    disassembly = build.disassemble(build.compile_int8(variant))
    return faults(hot_loop(disassembly, f"::int8_tile<{tile.rows}>("), tile, target)


def faults(loop: Loop, tile: Tile, target: Target) -> list[str]:
    """What is wrong with the hot loop of a tile; empty when no vector register goes to memory and back."""
    found = []
    per_step = tile.rows * tile.vectors(target)
    if loop.fmas == 0 or loop.fmas % per_step:
        found.append(f"{loop.fmas} multiply-adds, no multiple of {per_step}")
    if loop.stores:
        found.append(f"{loop.stores} vector stores")
    if loop.stack:
        found.append(f"{loop.stack} vector accesses to the stack")
    needed = loop.fmas // per_step * tile.loads(target)
    if loop.loads > needed:
        found.append(f"{loop.loads} vector loads for the {float(needed):g} needed")
    return found
