"""A small Diffusion Policy that has all of its parts."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {"chunk_size": 5}
SETTINGS: dict[str, Any] = {
    "down_dims": [16, 32],
    "n_groups": 4,
    "kernel_size": 3,
    "horizon": 8,
    "diffusion_step_embed_dim": 16,
    "spatial_softmax_num_keypoints": 5,
    "num_train_timesteps": 12,
}
