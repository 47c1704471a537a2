"""Normalization of every mode against LeRobot's own processor steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.factory import make_pre_post_processors
from safetensors.numpy import load_file, save_file

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Options

SMALL = {
    "dim_model": 16,
    "heads": 2,
    "feedforward": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "chunk_size": 4,
}
MODES = ["IDENTITY", "MEAN_STD", "MIN_MAX", "QUANTILES", "QUANTILE10"]


def hold_still(folder: Any, channel: int) -> None:
    """Statistics of a joint that never moved."""
    for path in folder.glob("policy_*.safetensors"):
        stats = load_file(path)
        for name in ("observation.state", "action"):
            for statistic in ("min", "max", "q01", "q99", "q10", "q90"):
                stats[f"{name}.{statistic}"][channel] = stats[f"{name}.mean"][channel]
            stats[f"{name}.std"][channel] = 0
        save_file(stats, path)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("still", [False, True])
def test_same_numbers(bench: Any, mode: str, still: bool) -> None:
    settings = {f"normalization_mapping.{kind}": mode for kind in ("STATE", "ACTION", "ENV")}
    options = Options(seed=8, cameras=(), env_state_dim=3, sizes=SMALL, settings=settings)
    checkpoint = bench.checkpoint("act", options)
    if still:
        hold_still(bench.folder, channel=2)
        checkpoint = load_checkpoint(bench.folder)
    before, after = make_pre_post_processors(ACTConfig(device="cpu"), pretrained_path=str(bench.folder))

    normalizer = checkpoint.normalizers["observation.state"]
    rng = np.random.default_rng(0)
    for _ in range(10):
        state = rng.uniform(-2, 2, 6).astype(np.float32)
        if still:
            # At rest; anywhere else its normalized value is astronomic, there as here.
            state[2] = normalizer.offset[2]
        expected = before({"observation.state": torch.from_numpy(state)})["observation.state"][0].numpy()
        ours = (state - normalizer.offset) / normalizer.divisor
        ours = ours if normalizer.shift is None else ours + normalizer.shift
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=2e-6)

        action = rng.uniform(-1.5, 1.5, (1, 4, 6)).astype(np.float32)
        scale, offset = checkpoint.unnormalizers["action"].affine()
        np.testing.assert_allclose(
            action * scale + offset, after(torch.from_numpy(action)).numpy(), rtol=1e-6, atol=1e-6
        )
