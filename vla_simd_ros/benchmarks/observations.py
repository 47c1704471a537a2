"""Observations to measure with: the same for every runner, and the same in every run."""

from __future__ import annotations

import numpy as np

from ..inference import Observation
from ..policies.base import PolicySpec

OBSERVATIONS = 4
"""Distinct observations, asked in turn."""


def make_observations(spec: PolicySpec, seed: int = 0) -> list[Observation]:
    """Smooth random frames with sensor noise, and states within a radian of zero."""
    rng = np.random.default_rng(seed)
    return [_observation(spec, rng) for _ in range(OBSERVATIONS)]


def _observation(spec: PolicySpec, rng: np.random.Generator) -> Observation:
    images = {
        name: _frame(camera.height, camera.width, camera.channels, rng)
        for name, camera in spec.cameras.items()
    }
    env_state = _state(spec.env_state_dim, rng) if spec.env_state_dim else None
    return Observation(images=images, state=_state(spec.state_dim, rng), env_state=env_state)


def _frame(height: int, width: int, channels: int, rng: np.random.Generator) -> np.ndarray:
    """A gradient in a random direction per channel, brighter blocks of 32 pixels, and noise."""
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    slope = rng.uniform(-80, 80, (2, channels))
    blocks = rng.uniform(-50, 50, (-(-height // 32), -(-width // 32), channels))
    coarse = blocks.repeat(32, axis=0).repeat(32, axis=1)[:height, :width]
    frame = 128 + y[..., None] * slope[0] + x[..., None] * slope[1] + coarse
    frame += rng.normal(0, 4, frame.shape)
    return np.clip(frame, 0, 255).astype(np.uint8)


def _state(width: int, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1, 1, width).astype(np.float32)
