"""Datasets on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'vla_simd_ros[dataset]'")

from small_datasets import write


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write(tmp_path / "images", "image")


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("av", reason="needs PyAV: pip install 'vla_simd_ros[dataset]'")
    return write(tmp_path_factory.mktemp("datasets") / "videos", "video", flush_after=3)


@pytest.fixture
def damage() -> Callable[[Path], None]:
    """Cuts a file off."""

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:100])

    return cut
