"""The graph against Octo in PyTorch, in float64 and in every variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.fidelity.cases import Case, random_cases
from vla_simd_ros.fidelity.measure import distance
from vla_simd_ros.fidelity.references import make_reference
from vla_simd_ros.inference import Observation

pytestmark = pytest.mark.needs_torch

SIZES = {"dim_model": 32, "heads": 2, "feedforward": 48, "encoder_layers": 2}
SETTINGS = {
    "stem_channels": [32, 32, 64, 32],
    "stem_width": 24,
    "time_dim": 8,
    "head_width": 64,
    "head_blocks": 2,
    "tokenizer_max_length": 10,
    "text_config.d_model": 16,
    "text_config.d_kv": 8,
    "text_config.d_ff": 16,
    "text_config.num_layers": 2,
    "text_config.num_heads": 2,
    "text_config.vocab_size": 500,
}
TWO = (Camera("primary", 48, 64), Camera("wrist", 32, 32))
VARIANTS: dict[str, dict[str, Any]] = {
    "octo-small-1.5": {},
    "octo-small": {"use_correct_attention": False, "repeat_task_tokens": False},
    "two readouts": {"n_readouts": 2},
    "two readouts of the first release": {"n_readouts": 2, "use_correct_attention": False},
    "three observations": {"n_obs_steps": 3},
    "one observation without goal": {"n_obs_steps": 1, "sees_goal": False},
    "wide patches": {"patch_size": 32},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("actions", [7, 5])
def test_the_graph_computes_what_pytorch_does(tmp_path: Path, variant: str, actions: int) -> None:
    settings = {**SETTINGS, **VARIANTS[variant]}
    cameras = (Camera("primary", 64, 32),) if variant == "wide patches" else TWO
    options = Options(seed=2, cameras=cameras, action_dim=actions, sizes=SIZES, settings=settings)
    make_checkpoint("octo", tmp_path / "octo", options)
    checkpoint = load_checkpoint(tmp_path / "octo")
    cases = random_cases(checkpoint, 1, seed=0)
    if settings.get("n_obs_steps", 2) > 1:
        cases.append(_without_the_oldest(cases[0]))
    ours, theirs = (
        make_reference(name, checkpoint, "open the drawer", np.float64) for name in ("float64", "torch")
    )
    for case in cases:
        assert distance(ours.predict(case), theirs.predict(case)).relative < 2e-6


def _without_the_oldest(case: Case) -> Case:
    steps = len(next(iter(case.observation.images.values())))
    valid = np.arange(steps) > 0
    return Case(Observation(case.observation.images, valid=valid), case.noise, case.num_steps)
