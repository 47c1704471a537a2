"""Statistics of a dataset's features, as LeRobot's processors store them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vla_simd_ros.training.demonstrations import ACTION, IMAGES, STATE, Demonstrations

_QUANTILES = {"q01": 0.01, "q10": 0.1, "q90": 0.9, "q99": 0.99}
# Enough to know the colours of a scene by.
_MOST_IMAGES = 500
_WHITE = 255.0
_STILL = 1e-6


def dataset_statistics(
    demonstrations: Demonstrations, frames: npt.NDArray[np.bool_]
) -> dict[str, npt.NDArray[np.float32]]:
    """Mean, deviation, extremes and quantiles by ``<feature>.<statistic>``, of the ``frames`` [n] marked.

    Those of images are by colour, in units of full brightness, of at most 500 images spread evenly.
    """
    values = _of(STATE, demonstrations.state[frames]) | _of(ACTION, demonstrations.action[frames])
    rows = np.flatnonzero(frames[demonstrations.seen])
    chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_IMAGES)).astype(int)]
    for camera, images in demonstrations.images.items():
        colours = (images[chosen].reshape(-1, images.shape[-1]) / np.float32(_WHITE)).astype(np.float32)
        of_camera = _of(f"{IMAGES}{camera}", colours)
        values |= {name: statistic.reshape(-1, 1, 1) for name, statistic in of_camera.items()}
    return values


def _spread(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The deviation, 1 of what never changes: nothing could be divided by it."""
    deviation = rows.std(0, dtype=np.float64)
    return np.where(deviation < _STILL, 1.0, deviation)


def _of(name: str, rows: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
    """Statistics over the rows of [n, C]."""
    found = {
        "mean": rows.mean(0, dtype=np.float64),
        "std": _spread(rows),
        "min": rows.min(0),
        "max": rows.max(0),
    }
    found |= dict(zip(_QUANTILES, np.quantile(rows, list(_QUANTILES.values()), axis=0), strict=True))
    return {f"{name}.{statistic}": value.astype(np.float32) for statistic, value in found.items()}
