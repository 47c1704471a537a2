"""Small checkpoints to compare."""

from __future__ import annotations

import pytest
from small_act import SMALL

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint

# A backbone of a quarter of its width: the same layers, in a moment.
NARROW = {"backbone_width": 16}


@pytest.fixture(scope="session")
def blind(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """An ACT without cameras."""
    folder = tmp_path_factory.mktemp("blind") / "act"
    make_checkpoint("act", folder, Options(seed=3, cameras=(), env_state_dim=3, sizes=SMALL))
    return load_checkpoint(folder)


@pytest.fixture(scope="session")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """An ACT with two cameras."""
    folder = tmp_path_factory.mktemp("seeing") / "act"
    cameras = (Camera("front", 40, 64), Camera("wrist", 32, 48))
    make_checkpoint("act", folder, Options(seed=4, cameras=cameras, sizes=SMALL, settings=NARROW))
    return load_checkpoint(folder)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """An ACT with a camera of 4x4, called front, and a state of 2."""
    folder = tmp_path_factory.mktemp("small") / "act"
    make_checkpoint(
        "act", folder, Options(seed=5, cameras=(Camera("front", 4, 4),), state_dim=2, sizes=SMALL)
    )
    return load_checkpoint(folder)
