"""Statistics of features as LeRobot keeps them, by episode and over all of them, for normalization."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Statistics = dict[str, Array]
"""min, max, mean, std, count and quantiles by name."""

_QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}


def of_vectors(values: npt.ArrayLike) -> Statistics:
    """Over the frames of `values` [n, ...], element by element; of numbers [n] as vectors of one."""
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    quantiles = np.quantile(array, list(_QUANTILES.values()), axis=0)
    return {
        "min": array.min(axis=0),
        "max": array.max(axis=0),
        "mean": array.mean(axis=0),
        "std": array.std(axis=0),
        "count": np.array([len(array)]),
        **dict(zip(_QUANTILES, quantiles, strict=True)),
    }


def of_pictures(pictures: Sequence[npt.NDArray[np.uint8]]) -> Statistics:
    """By channel, over all pixels of pictures [height, width, channels], in 0..1; each [channels, 1, 1]."""
    counts = _histograms(pictures)
    levels = np.arange(256) / 255.0
    shares = counts / counts.sum(axis=1, keepdims=True)
    below = np.cumsum(shares, axis=1)
    mean = shares @ levels
    found = {
        "min": np.array([levels[np.flatnonzero(each)[0]] for each in counts]),
        "max": np.array([levels[np.flatnonzero(each)[-1]] for each in counts]),
        "mean": mean,
        "std": np.sqrt(np.maximum(shares @ levels**2 - mean**2, 0.0)),
        **{
            name: np.array([levels[np.searchsorted(each, share)] for each in below])
            for name, share in _QUANTILES.items()
        },
    }
    return {
        **{name: value.reshape(-1, 1, 1) for name, value in found.items()},
        "count": np.array([len(pictures)]),
    }


def _histograms(pictures: Sequence[npt.NDArray[np.uint8]]) -> Array:
    """[channels, 256] how often each value occurs."""
    channels = pictures[0].shape[2]
    counts = np.zeros((channels, 256))
    for picture in pictures:
        for channel in range(channels):
            counts[channel] += np.bincount(picture[..., channel].ravel(), minlength=256)
    return counts


def merged(parts: Iterable[Statistics]) -> Statistics:
    """Of the frames of all parts together; quantiles, which cannot be known then, are weighted means."""
    every = list(parts)
    counts = np.array([float(part["count"][0]) for part in every])
    weights = counts / counts.sum()

    def average(values: list[Array]) -> Array:
        return np.asarray(np.tensordot(weights, np.stack(values), axes=1))

    mean = average([part["mean"] for part in every])
    spread = average([part["std"] ** 2 + (part["mean"] - mean) ** 2 for part in every])
    return {
        "min": np.min([part["min"] for part in every], axis=0),
        "max": np.max([part["max"] for part in every], axis=0),
        "mean": mean,
        "std": np.sqrt(spread),
        "count": np.array([int(counts.sum())]),
        **{name: average([part[name] for part in every]) for name in _QUANTILES},
    }
