"""The graphs against the driving planners in PyTorch, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import small_options

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, make_checkpoint
from vla_simd_ros.fidelity.cases import random_cases
from vla_simd_ros.fidelity.measure import distance
from vla_simd_ros.fidelity.references import make_reference

pytestmark = pytest.mark.needs_torch

VARIANTS: dict[str, dict[str, Any]] = {
    "borders": {},
    "one window": {"vision_config.window_size": 16},
    "every layer across the view": {"vision_config.global_every": 1},
    "no layer across the view": {"vision_config.global_every": 4},
    "as many key heads": {"text_config.num_key_value_heads": 4},
    "one query": {"query_config.num_queries": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("policy", ["minddrive", "orion"])
def test_the_graph_computes_what_pytorch_does(tmp_path: Path, policy: str, variant: str) -> None:
    cameras = (
        (Camera("front", 40, 72),) if variant == "one query" else (Camera("a", 48, 80), Camera("b", 48, 80))
    )
    make_checkpoint(
        policy, tmp_path / policy, small_options(policy, settings=VARIANTS[variant], seed=4, cameras=cameras)
    )
    checkpoint = load_checkpoint(tmp_path / policy)
    (case,) = random_cases(checkpoint, 1, seed=2)
    ours, theirs = (
        make_reference(name, checkpoint, "turn left at the crossing", np.float64)
        for name in ("float64", "torch")
    )
    assert distance(ours.predict(case), theirs.predict(case)).relative < 5e-7
