from __future__ import annotations

import numpy as np
import pytest
from demonstration_doubles import Memory, Shape

from vla_simd_ros.training.demonstrations import DataError
from vla_simd_ros.training.several import Several


def test_frames_follow_each_other_and_episodes_are_numbered_on() -> None:
    first, empty, second = Memory(episodes=2, length=3), Memory(), Memory(episodes=3, length=2, seed=1)
    empty.frames = []
    both = Several([first, empty, second])

    assert len(both) == 12
    assert [both.frame(index)["episode_index"] for index in range(12)] == [0] * 3 + [1] * 3 + [
        2,
        2,
        3,
        3,
        4,
        4,
    ]
    np.testing.assert_array_equal(both.frame(5)["action"], first.frames[5]["action"])
    np.testing.assert_array_equal(both.frame(7)["action"], second.frames[1]["action"])
    assert both.features == first.features


def test_other_features_are_refused() -> None:
    other = Memory()
    other.features["action"] = Shape((3,))
    with pytest.raises(DataError, match=r"dataset 2 of 2 has features .*'action': \(3,\)"):
        Several([Memory(), other])
