from __future__ import annotations

import platform
from pathlib import Path

import pytest

from vla_simd_ros.tuning.kernel_build import BuildError, KernelBuild, cross_compiler
from vla_simd_ros.tuning.target import TARGETS

OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"


def test_this_processor_needs_no_other_compiler() -> None:
    assert cross_compiler(platform.machine()) is None


def test_a_missing_cross_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        BuildError, match=f"no compiler for {OTHER} is installed, expected {OTHER}-linux-gnu-g"
    ):
        cross_compiler(OTHER)


def test_sources_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="does not hold the engine's sources"):
        KernelBuild(TARGETS["avx2"], tmp_path, tmp_path)


def test_a_missing_cmake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match="cmake is not installed"):
        KernelBuild(TARGETS["avx2"], tmp_path)


def test_what_the_compiler_says_is_told(tmp_path: Path) -> None:
    here = next(target for target in TARGETS.values() if target.architecture == platform.machine())
    build = KernelBuild(here, tmp_path)
    with pytest.raises(BuildError, match=r"(?s)failed with status 1.*no_such_type"):
        build.compile("kernels/tile.cpp", "broken.o", ["VLA_TILE_ROWS=no_such_type", "VLA_TILE_VECS=1"])
