from __future__ import annotations

import platform
import shutil

import pytest

from vla_simd_ros.tuning.target import TARGETS, Target
from vla_simd_ros.tuning.tile_report import sweep_json, sweep_lines
from vla_simd_ros.tuning.tile_session import TileTask, tune_tiles
from vla_simd_ros.tuning.tile_sweep import IMPACT_SHAPES, LinearShape, TileSpeed
from vla_simd_ros.tuning.tiles import Selection, Tile

AVX2, NEON = TARGETS["avx2"], TARGETS["neon"]
OTHER = NEON if platform.machine() == "x86_64" else AVX2


def test_without_a_compiler_the_text_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    report, text = tune_tiles(TileTask(OTHER, [64], IMPACT_SHAPES), lambda _: None)
    assert "Spills were not checked" in text and f"no compiler for {OTHER.architecture}" in text
    assert OTHER.architecture in report["spills_unchecked"]


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
@pytest.mark.parametrize(("target", "choice"), [(AVX2, "6x16"), (NEON, "4x16")], ids=["avx2", "neon"])
def test_the_compiled_tiles_give_the_paper_s_choices(target: Target, choice: str) -> None:
    """With the compilers that are installed, the one for the other processor included."""
    if target is OTHER and shutil.which(f"{target.architecture}-linux-gnu-g++") is None:
        pytest.skip(f"no compiler for {target.architecture} is installed")
    said: list[str] = []
    shapes = [LinearShape(8, 16, 64)]
    report, text = tune_tiles(TileTask(target, [64, 512, 3200], shapes), said.append)
    assert report["choice"] == choice and report["g"] == 64
    assert f"Choice: {choice}." in text
    assert f"compiling the tile {choice}" in said
    if target is OTHER:
        assert f"{target.isa} does not run on this {platform.machine()}" in text
        assert "sweep" not in report
    if target is NEON:
        reasons = {c["tile"]: c["reason"] for c in report["candidates"]}
        assert reasons["5x16"].startswith("spills: ") and reasons["10x8"].startswith("spills: ")


def test_a_sweep_says_where_the_choice_ranks() -> None:
    shapes = [LinearShape(1, 2, 3), LinearShape(4, 5, 6)]
    speeds = [TileSpeed(Tile(5, 16), (120.0, 120.0)), TileSpeed(Tile(6, 16), (100.0, 130.0))]
    selection = Selection(AVX2, 64, (), Tile(6, 16))
    text = "\n".join(sweep_lines(selection, shapes, speeds, Tile(6, 16)))
    assert "own tile" not in text
    text = "\n".join(sweep_lines(selection, shapes, speeds, Tile(5, 16)))
    assert "The engine's own tile, 5x16, ranks 1, at 100.0%." in text
    assert "| 5x16 | 120.0 | 120.0 | 120.0 |" in text
    assert "6x16, ranks 2 of 2 by the geometric mean, at 95.0% of the fastest" in text
    assert "Faster on single layers: 5x16 on 1x2x3 by 20.0%." in text
    assert sweep_json(shapes, speeds)[0]["gflops"] == {"1x2x3": 120.0, "4x5x6": 120.0}
