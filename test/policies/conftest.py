"""Writes each small checkpoint at most once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.synthesis import make_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Checkpoint]:
    """A small checkpoint of a policy with some options replaced."""
    written: dict[str, Checkpoint] = {}

    def open_checkpoint(policy: str, **changes: Any) -> Checkpoint:
        key = repr((policy, sorted(changes.items())))
        if key not in written:
            folder = tmp_path_factory.mktemp(policy) / "checkpoint"
            make_checkpoint(policy, folder, small_options(policy, **changes))
            written[key] = load_checkpoint(folder)
        return written[key]

    return open_checkpoint
