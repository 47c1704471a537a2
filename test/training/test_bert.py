"""The PyTorch BERT encoder: padding changes nothing, and the engine computes the same policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_checkpoints import WITH_BERT, small_options

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import make_checkpoint
from vla_simd_ros.fidelity.observations import random_observations
from vla_simd_ros.inference import Policy

pytestmark = pytest.mark.needs_torch


def test_padding_changes_no_state() -> None:
    import torch

    from vla_simd_ros.training.bert import BertConfig, BertEncoder

    torch.manual_seed(0)
    encoder = BertEncoder(BertConfig(50, 12, 2, 3, 20, max_position_embeddings=9)).double()
    ids = torch.randint(0, 50, (1, 4))
    padded = torch.cat((ids, torch.randint(0, 50, (1, 5))), dim=1)
    mask = torch.arange(9)[None] < 4

    states = encoder(padded, mask)[:, :4]
    torch.testing.assert_close(states, encoder(ids, mask[:, :4]), rtol=0, atol=1e-12)


def test_the_engine_gives_the_actions_of_the_torch_network(tmp_path: Path) -> None:
    from vla_simd_ros.training.impact_predictor import ImpactPredictor

    changes = {**WITH_BERT, "settings": {**WITH_BERT["settings"], "backbone_width": 8}}
    make_checkpoint("impact", tmp_path / "impact", small_options("impact", dtype="bf16", **changes))
    checkpoint = load_checkpoint(tmp_path / "impact")
    policy, predictor = Policy.load(tmp_path / "impact"), ImpactPredictor(checkpoint)
    for observation in random_observations(checkpoint, 2, seed=1):
        policy.set_instruction("open the drawer")
        expected = predictor.predict(
            observation.images, observation.state, observation.env_state, "open the drawer"
        )
        actions = policy.query(observation).actions
        assert np.abs(actions - expected).max() < 2e-5 * np.abs(expected).max()
