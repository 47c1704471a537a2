"""Statistics that a policy's inputs and actions are normalized with, as LeRobot's processors store them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_simd_ros.datasets.statistics import Statistics, of_pictures, of_vectors
from vla_simd_ros.training.demonstrations import ACTION, IMAGES, STATE, Demonstrations

# Enough to know the colours of a scene by.
_MOST_IMAGES = 500
_STILL = 1e-6


def dataset_statistics(
    demonstrations: Demonstrations, frames: npt.NDArray[np.bool_]
) -> dict[str, npt.NDArray[np.float32]]:
    """Mean, deviation, extremes and quantiles by ``<feature>.<statistic>``, of the ``frames`` [n] marked.

    Those of images are by colour, in units of full brightness, of at most 500 images spread evenly.
    """
    found = {
        STATE: of_vectors(demonstrations.state[frames]),
        ACTION: of_vectors(demonstrations.action[frames]),
    }
    rows = np.flatnonzero(frames[demonstrations.seen])
    chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_IMAGES)).astype(int)]
    for camera, images in demonstrations.images.items():
        found[IMAGES + camera] = of_pictures([images[row] for row in chosen])
    return {
        f"{feature}.{name}": value.astype(np.float32)
        for feature, statistics in found.items()
        for name, value in _dividing(statistics).items()
    }


def _dividing(statistics: Statistics) -> Statistics:
    """What is normalized by: the deviation of what never changes is 1, as nothing could be divided by it."""
    kept = {name: value for name, value in statistics.items() if name != "count"}
    return {**kept, "std": np.where(kept["std"] < _STILL, 1.0, kept["std"])}
