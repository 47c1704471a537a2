"""The measured speed of register tiles: linear layers by the engine's own kernels, compiled for each tile."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vla_simd_ros.tuning.kernel_build import BuildError, KernelBuild
from vla_simd_ros.tuning.spills import tile_defines
from vla_simd_ros.tuning.target import Target
from vla_simd_ros.tuning.tiles import Tile

_ROUNDS = 3
_SOURCES = (
    "kernels/linear.cpp",
    "kernels/pack.cpp",
    "tuning/time_tile.cpp",
)
_REPEATS = 5
RUNS = 2 * _ROUNDS * _REPEATS
"""Timed runs of each layer with each tile."""


@dataclass(frozen=True)
class LinearShape:
    """A linear layer: ``rows`` of ``depth`` values to ``cols`` outputs."""

    rows: int
    depth: int
    cols: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.depth}x{self.cols}"

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.depth * self.cols


IMPACT_SHAPES = tuple(
    LinearShape(*shape)
    for shape in (
        (634, 512, 512),
        (634, 512, 3200),
        (634, 3200, 512),
        (50, 512, 512),
        (50, 512, 3200),
        (50, 3200, 512),
    )
)
"""Layers of IMPACT with two 480x640 cameras: what tiles are compared on where no checkpoint is given."""


@dataclass(frozen=True)
class TileSpeed:
    """GFLOP/s of a tile on each of the layers; ``mean`` is their geometric mean."""

    tile: Tile
    gflops: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.exp(sum(map(math.log, self.gflops)) / len(self.gflops))


TimeTile = Callable[[Tile], Sequence[int]]
"""Nanoseconds of each layer with a tile."""


def sweep(tiles: Sequence[Tile], shapes: Sequence[LinearShape], time_tile: TimeTile) -> list[TileSpeed]:
    """All tiles, the fastest first: the shortest time of each layer in visits there and back (A-B-B-A)."""
    best: dict[Tile, list[int]] = {}
    for _ in range(_ROUNDS):
        for tile in (*tiles, *reversed(tiles)):
            times = time_tile(tile)
            best[tile] = [min(pair) for pair in zip(best.get(tile, times), times, strict=True)]
    speeds = [
        TileSpeed(tile, tuple(shape.flops / ns for shape, ns in zip(shapes, times, strict=True)))
        for tile, times in best.items()
    ]
    return sorted(speeds, key=lambda speed: -speed.mean)


class TileTimer:
    """Times linear layers on one core with tiles of a target that this machine can run."""

    def __init__(
        self,
        target: Target,
        build: KernelBuild,
        object_file: Callable[[Tile], Path],
        shapes: Sequence[LinearShape],
    ) -> None:
        self._target = target
        self._build = build
        self._object_file = object_file
        self._shapes = [str(shape) for shape in shapes]
        self._programs: dict[Tile, Path] = {}

    def __call__(self, tile: Tile) -> list[int]:
        """Nanoseconds of each layer, the shortest of several; compiles the tile the first time.

        Raises BuildError when it cannot be compiled or run.
        """
        program = self._programs.get(tile) or self._make(tile)
        command = [str(program), str(_REPEATS), *self._shapes]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"timing the tile {tile} ended with status {done.returncode}: {done.stderr}")
        return [int(line) for line in done.stdout.splitlines()]

    def _make(self, tile: Tile) -> Path:
        defines = tile_defines(tile, self._target)
        objects = [self._object_file(tile)]
        for source in _SOURCES:
            name = f"{Path(source).stem}_{tile}.o"
            objects.append(self._build.compile(source, name, defines))
        self._programs[tile] = self._build.link(objects, f"time_tile_{tile}")
        return self._programs[tile]


def rank(choice: Tile, speeds: Sequence[TileSpeed]) -> tuple[int, float]:
    """Place of the choice among the measured tiles, from 1, and its part of the fastest one's speed."""
    place = next(i for i, speed in enumerate(speeds) if speed.tile == choice)
    return place + 1, speeds[place].mean / speeds[0].mean


def slower_layers(choice: Tile, speeds: Sequence[TileSpeed]) -> Mapping[int, Tile]:
    """The layers, by index, on which another tile is faster than the choice, and the fastest tile there."""
    chosen = next(speed for speed in speeds if speed.tile == choice)
    fastest = {
        layer: max(speeds, key=lambda speed: speed.gflops[layer]).tile for layer in range(len(chosen.gflops))
    }
    return {layer: tile for layer, tile in fastest.items() if tile != choice}
