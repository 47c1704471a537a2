"""IMPACT at full size against the PyTorch network, in the two configurations of its publication."""

from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options

SO101 = Options(seed=1)
LIBERO = Options(
    seed=2, cameras=(Camera("agent", 256, 256), Camera("wrist", 256, 256)), state_dim=8, action_dim=7
)


@pytest.mark.parametrize(
    ("options", "instruction"),
    [
        pytest.param(SO101, "Put the tape into the cup.", id="so101"),
        pytest.param(LIBERO, "turn on the stove and put the moka pot on it", id="libero"),
        pytest.param(LIBERO, "pick up the cube and " * 20, id="truncated"),
    ],
)
def test_full_size(bench: Any, options: Options, instruction: str) -> None:
    assert bench.compare("impact", options, "torch", instruction).passed
