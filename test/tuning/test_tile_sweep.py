from __future__ import annotations

import platform
import shutil
import stat
from pathlib import Path

import pytest

from vla_simd_ros.tuning.kernel_build import BuildError, KernelBuild
from vla_simd_ros.tuning.spills import SpillCheck
from vla_simd_ros.tuning.target import TARGETS
from vla_simd_ros.tuning.tile_sweep import LinearShape, TileSpeed, TileTimer, rank, slower_layers, sweep
from vla_simd_ros.tuning.tiles import Tile

SHAPES = (LinearShape(10, 10, 10), LinearShape(20, 10, 10))
A, B = Tile(6, 16), Tile(2, 32)


def test_the_shortest_times_count_and_the_fastest_tile_is_first() -> None:
    visits: list[Tile] = []

    def time_tile(tile: Tile) -> list[int]:
        visits.append(tile)
        slow = 10 * (len(visits) % 3)
        return [1000 + slow, 1000] if tile == A else [500 + slow, 1000 + slow]

    speeds = sweep([A, B], SHAPES, time_tile)
    assert visits[:4] == [A, B, B, A]
    assert [speed.tile for speed in speeds] == [B, A]
    assert speeds[0].gflops == (2000 / 500, 4000 / 1000)
    assert speeds[1].gflops == (2.0, 4.0)
    assert speeds[1].mean == pytest.approx(8**0.5)


def test_rank_and_layers_on_which_another_is_faster() -> None:
    speeds = [TileSpeed(B, (10.0, 1.0)), TileSpeed(A, (2.0, 2.0))]
    assert rank(B, speeds) == (1, 1.0)
    place, share = rank(A, speeds)
    assert (place, share) == (2, pytest.approx(2 / 10**0.5))
    assert slower_layers(A, speeds) == {0: B}
    assert slower_layers(B, speeds) == {1: A}


def runs_avx2() -> bool:
    from vla_simd_ros import _engine

    return "avx2" in _engine.available_isas()


@pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("cmake") is None or not runs_avx2(),
    reason="needs cmake and a CPU with AVX2",
)
def test_a_tile_is_compiled_and_timed(tmp_path: Path) -> None:
    target = TARGETS["avx2"]
    build = KernelBuild(target, tmp_path)
    timer = TileTimer(target, build, SpillCheck(target, build).object_file, [LinearShape(7, 33, 19)])
    (first,) = timer(A)
    assert first > 0
    program = tmp_path / "time_tile_6x16"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(BuildError, match="timing the tile 6x16 ended with status 3: broken"):
        timer(A)
