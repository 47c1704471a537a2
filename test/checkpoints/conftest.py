"""A small checkpoint folder, and copies of it to spoil."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_act import SMALL

from vla_simd_ros.checkpoints.synthesis import Options, make_checkpoint


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ACT without cameras: all parts of a folder in a few kilobytes."""
    folder = tmp_path_factory.mktemp("pristine") / "act"
    settings = {"n_vae_encoder_layers": 1}
    make_checkpoint(
        "act", folder, Options(seed=3, cameras=(), env_state_dim=3, sizes=SMALL, settings=settings)
    )
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A copy that the test may change."""
    copy = tmp_path / "act"
    shutil.copytree(pristine, copy)
    return copy


@pytest.fixture
def edit(folder: Path) -> Callable[[str, Callable[[Any], None]], None]:
    """Change the content of one of the folder's JSON files."""

    def change(name: str, by: Callable[[Any], None]) -> None:
        content = json.loads((folder / name).read_text())
        by(content)
        (folder / name).write_text(json.dumps(content))

    return change
