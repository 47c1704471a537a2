"""Several datasets of one robot, one after the other."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from vla_simd_ros.training.demonstrations import DataError, FeatureShape, Frames


class Several:
    """The frames of all ``datasets``; episodes are numbered on. Raises `DataError` if features differ."""

    def __init__(self, datasets: Sequence[Frames]) -> None:
        self._datasets = list(datasets)
        shapes = [_shapes(dataset) for dataset in datasets]
        for number, own in enumerate(shapes):
            if own != shapes[0]:
                raise DataError(
                    f"dataset {number + 1} of {len(shapes)} has features {own}, expected {shapes[0]}"
                )
        self._starts = [0, *itertools.accumulate(len(dataset) for dataset in datasets)]
        self._first_episodes = [0]
        for dataset in datasets:
            last = int(dataset.frame(len(dataset) - 1)["episode_index"]) if len(dataset) else -1
            self._first_episodes.append(self._first_episodes[-1] + last + 1)

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def features(self) -> Mapping[str, FeatureShape]:
        """Those that all have."""
        return self._datasets[0].features

    def frame(self, index: int) -> Mapping[str, Any]:
        """One frame, with the number of its episode among all."""
        number = bisect.bisect_right(self._starts, index) - 1
        frame = self._datasets[number].frame(index - self._starts[number])
        episode = int(frame["episode_index"]) + self._first_episodes[number]
        return {**frame, "episode_index": episode}


def _shapes(dataset: Frames) -> dict[str, tuple[int, ...]]:
    return {name: tuple(feature.shape) for name, feature in sorted(dataset.features.items())}
