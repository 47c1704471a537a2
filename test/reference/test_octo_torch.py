"""Octo at full size against the PyTorch network, with its own robots' cameras and with those of another."""

from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options, default_options

ONE = Options(seed=2, cameras=(Camera("primary", 256, 256),), action_dim=6)


@pytest.mark.parametrize(
    ("options", "instruction"),
    [
        pytest.param(default_options("octo"), "put the tape into the cup", id="octo-small"),
        pytest.param(ONE, "pick up the cube and " * 20, id="one camera, six joints, truncated"),
    ],
)
def test_full_size(bench: Any, options: Options, instruction: str) -> None:
    assert bench.compare("octo", options, "torch", instruction).passed
