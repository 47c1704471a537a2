from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from vla_simd_ros.tuning.hot_loop import Loop
from vla_simd_ros.tuning.kernel_build import KernelBuild
from vla_simd_ros.tuning.spills import SpillCheck, faults, int8_faults
from vla_simd_ros.tuning.target import TARGETS, Target
from vla_simd_ros.tuning.tiles import Tile

needs_tools = pytest.mark.skipif(
    shutil.which("objdump") is None or shutil.which("cmake") is None, reason="needs binutils and cmake"
)
AVX2, NEON = TARGETS["avx2"], TARGETS["neon"]
ENGINE_TILES = {"avx2": Tile(6, 16), "avx512": Tile(13, 32), "neon": Tile(4, 16)}
INT8_TILES = {
    "avx2": {"avx2": Tile(6, 16), "avxvnni": Tile(6, 16)},
    "avx512": {"avx512": Tile(12, 32), "avx512vnni": Tile(13, 32)},
    "neon": {"neon": Tile(8, 8), "neondot": Tile(8, 8)},
}
HERE = [target for target in TARGETS.values() if target.architecture == platform.machine()]


@pytest.mark.parametrize(
    ("target", "tile", "loop"),
    [
        (AVX2, Tile(6, 16), Loop(fmas=48, loads=32, stores=0, stack=0)),
        (AVX2, Tile(6, 16), Loop(fmas=48, loads=28, stores=0, stack=0)),
        (NEON, Tile(4, 16), Loop(fmas=64, loads=20, stores=0, stack=0)),  # four loads serve four steps
    ],
)
def test_a_loop_that_loads_what_it_needs_passes(target: Target, tile: Tile, loop: Loop) -> None:
    assert faults(loop, tile, target) == []


@pytest.mark.parametrize(
    ("loop", "fault"),
    [
        (Loop(fmas=48, loads=32, stores=1, stack=0), "1 vector stores"),
        (Loop(fmas=48, loads=32, stores=0, stack=2), "2 vector accesses to the stack"),
        (Loop(fmas=48, loads=33, stores=0, stack=0), "33 vector loads for the 32 needed"),
        (Loop(fmas=47, loads=24, stores=0, stack=0), "47 multiply-adds, no multiple of 12"),
        (Loop(fmas=0, loads=0, stores=0, stack=0), "0 multiply-adds, no multiple of 12"),
    ],
)
def test_what_a_loop_should_not_do(loop: Loop, fault: str) -> None:
    assert faults(loop, Tile(6, 16), AVX2) == [fault]


@needs_tools
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_the_engines_tiles_do_not_spill_and_a_larger_one_does(target: Target, tmp_path: Path) -> None:
    check = SpillCheck(target, KernelBuild(target, tmp_path))
    assert check(ENGINE_TILES[target.name]) == ()
    too_large = Tile(target.registers // 2 + 2, 2 * target.lanes)  # more sums than there are registers
    assert any("accesses to the stack" in fault for fault in check(too_large))


@needs_tools
@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_the_tiles_of_the_int8_kernels_do_not_spill(target: Target, tmp_path: Path) -> None:
    build = KernelBuild(target, tmp_path)
    for variant, tile in INT8_TILES[target.name].items():
        assert int8_faults(build, variant, tile, target) == [], variant
