from __future__ import annotations

from pathlib import Path

import numpy as np
from demonstration_doubles import Memory

from vla_simd_ros.training.demonstrations import read_demonstrations
from vla_simd_ros.training.statistics import dataset_statistics


def test_statistics_are_those_of_the_frames_marked(tmp_path: Path) -> None:
    dataset = Memory(episodes=3, length=4)
    data = read_demonstrations(dataset, tmp_path, lambda text: None)
    marked = data.episode != 1
    found = dataset_statistics(data, marked)

    frames = [frame for frame in dataset.frames if frame["episode_index"] != 1]
    state = np.stack([frame["observation.state"] for frame in frames])
    np.testing.assert_allclose(found["observation.state.mean"], state.mean(0), rtol=1e-6)
    np.testing.assert_allclose(found["observation.state.std"], state.std(0), rtol=1e-5)
    np.testing.assert_array_equal(found["observation.state.max"], state.max(0))
    np.testing.assert_allclose(found["observation.state.q90"], np.quantile(state, 0.9, axis=0), rtol=1e-6)

    pixels = np.stack([frame["observation.images.wrist"] for frame in frames]).reshape(-1, 3) / 255
    assert found["observation.images.wrist.mean"].shape == (3, 1, 1)
    np.testing.assert_allclose(found["observation.images.wrist.mean"].ravel(), pixels.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found["observation.images.wrist.std"].ravel(), pixels.std(0), rtol=1e-4)


def test_what_never_changes_is_not_blown_up(tmp_path: Path) -> None:
    dataset = Memory()
    for frame in dataset.frames:
        frame["observation.state"][1] = 0.3
    data = read_demonstrations(dataset, tmp_path, lambda text: None)
    assert dataset_statistics(data, data.episode >= 0)["observation.state.std"][1] == 1
