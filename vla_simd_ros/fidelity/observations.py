"""Random observations as a robot gives them: uint8 frames, state in robot units."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint, Feature, FeatureKind
from vla_simd_ros.inference import Observation
from vla_simd_ros.policies.registry import define_policy

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

_STATE = "observation.state"
# Side, in pixels, of the patches of even colour that the frames are made of.
_PATCH = 16
_NOISE = 24


def random_observations(checkpoint: Checkpoint, count: int, seed: int) -> list[Observation]:
    """``count`` observations within the range that the checkpoint's statistics describe. Where the policy
    takes several observation steps, every third one begins an episode: its first step repeats the second."""
    steps = define_policy(checkpoint).spec.observation_steps
    generators = [np.random.default_rng([seed, index]) for index in range(count)]
    if steps == 1:
        return [_observation(checkpoint, rng) for rng in generators]
    return [_history(checkpoint, rng, steps, index % 3 == 1) for index, rng in enumerate(generators)]


def _history(checkpoint: Checkpoint, rng: np.random.Generator, steps: int, begins: bool) -> Observation:
    parts = [_observation(checkpoint, rng) for _ in range(steps)]
    if begins:
        parts[0] = parts[1]
    return Observation(
        {name: np.stack([part.images[name] for part in parts]) for name in parts[0].images},
        _stacked([part.state for part in parts]),
        _stacked([part.env_state for part in parts]),
        np.arange(steps) >= int(begins),
    )


def _stacked(vectors: list[npt.NDArray[np.floating[Any]] | None]) -> npt.NDArray[np.floating[Any]] | None:
    present = [vector for vector in vectors if vector is not None]
    return np.stack(present) if present else None


def _observation(checkpoint: Checkpoint, rng: np.random.Generator) -> Observation:
    images = {name: _frame(feature, rng) for name, feature in checkpoint.cameras.items()}
    # Data sets may record more vectors of these kinds than the ones that a policy takes.
    state = checkpoint.features_in.get(_STATE)
    env_state = next((f for f in checkpoint.features_in.values() if f.kind is FeatureKind.ENV), None)
    first, second = (None if f is None else _vector(checkpoint, f, rng) for f in (state, env_state))
    return Observation(images, first, second)


def _frame(feature: Feature, rng: np.random.Generator) -> U8:
    """Coloured patches under pixel noise: large structure and small, every value from 0 to 255."""
    channels, height, width = feature.shape
    grid = (-(-height // _PATCH), -(-width // _PATCH), channels)
    colours = rng.integers(0, 256, grid).repeat(_PATCH, axis=0).repeat(_PATCH, axis=1)
    noise = rng.integers(-_NOISE, _NOISE + 1, (height, width, channels))
    frame: U8 = np.clip(colours[:height, :width] + noise, 0, 255).astype(np.uint8)
    return frame


def _vector(checkpoint: Checkpoint, feature: Feature, rng: np.random.Generator) -> F32:
    normalizer = checkpoint.normalizers[feature.name]
    spread = rng.uniform(-1.5, 1.5, feature.channels)
    return (normalizer.offset + normalizer.divisor * spread).astype(np.float32)
