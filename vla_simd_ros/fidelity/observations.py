"""Random observations as a robot gives them: uint8 frames, state in robot units."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint, Feature, FeatureKind
from vla_simd_ros.inference import Observation

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

_STATE = "observation.state"
# Side, in pixels, of the patches of even colour that the frames are made of.
_PATCH = 16
_NOISE = 24


def random_observations(checkpoint: Checkpoint, count: int, seed: int) -> list[Observation]:
    """``count`` observations within the range that the checkpoint's statistics describe."""
    return [_observation(checkpoint, np.random.default_rng([seed, index])) for index in range(count)]


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
