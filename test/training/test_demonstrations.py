from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demonstration_doubles import HEIGHT, WIDTH, Memory, Shape

from vla_simd_ros.training.demonstrations import (
    DataError,
    Demonstrations,
    chunks,
    episode_ends,
    held_out_episodes,
    read_demonstrations,
)


def read(dataset: Memory, folder: Path, **options: Any) -> Demonstrations:
    return read_demonstrations(dataset, folder, lambda text: None, **options)


def test_everything_a_frame_holds_is_there(tmp_path: Path) -> None:
    dataset = Memory()
    data = read(dataset, tmp_path)

    assert data.episodes == (0, 1, 2, 3)
    for index, frame in enumerate(dataset.frames):
        for camera in ("front", "wrist"):
            np.testing.assert_array_equal(data.images[camera][index], frame[f"observation.images.{camera}"])
        np.testing.assert_array_equal(data.state[index], frame["observation.state"])
        np.testing.assert_array_equal(data.action[index], frame["action"])
        assert data.tasks[data.task[index]] == frame["task"]
        assert data.episode[index] == frame["episode_index"]


def test_images_of_some_frames_but_actions_of_all(tmp_path: Path) -> None:
    dataset = Memory()
    data = read(dataset, tmp_path, stride=5)

    assert data.seen.tolist() == [0, 5, 10, 15, 20]
    assert len(data.action) == len(dataset)
    for row, index in enumerate(data.seen):
        np.testing.assert_array_equal(
            data.images["front"][row], dataset.frames[index]["observation.images.front"]
        )


def test_nothing_is_decoded_twice_and_what_is_new_is_appended(tmp_path: Path) -> None:
    dataset = Memory(episodes=6)
    grown = list(dataset.frames)
    dataset.frames = grown[:12]
    read(dataset, tmp_path)
    asked: list[int] = []

    class Counting(Memory):
        def frame(self, index: int) -> Any:
            asked.append(index)
            return grown[index]

    again = read(Counting(episodes=6), tmp_path)
    assert asked == list(range(12, 36))
    np.testing.assert_array_equal(again.images["wrist"][30], grown[30]["observation.images.wrist"])
    np.testing.assert_array_equal(again.action, [frame["action"] for frame in grown])


def test_an_interrupted_read_goes_on(tmp_path: Path) -> None:
    class Failing(Memory):
        def frame(self, index: int) -> Any:
            if index == 7:
                raise OSError("no more")
            return super().frame(index)

    with pytest.raises(OSError, match="no more"):
        read(Failing(), tmp_path)
    # As by a process that was ended while it wrote.
    with (tmp_path / "front.u8").open("ab") as file:
        file.write(b"half a picture")

    data, whole = read(Memory(), tmp_path), Memory()
    for index, frame in enumerate(whole.frames):
        np.testing.assert_array_equal(data.images["front"][index], frame["observation.images.front"])


def test_another_size_or_stride_is_decoded_again(tmp_path: Path) -> None:
    assert read(Memory(), tmp_path).images["front"].shape[1:] == (HEIGHT, WIDTH, 3)
    assert read(Memory(), tmp_path, size=(16, 24)).images["front"].shape == (24, 16, 24, 3)
    assert read(Memory(), tmp_path, size=(16, 24), stride=2).images["front"].shape == (12, 16, 24, 3)


def test_chunks_end_with_their_episode(tmp_path: Path) -> None:
    data = read(Memory(episodes=2, length=4), tmp_path)
    ends = episode_ends(data.episode)
    assert ends.tolist() == [4] * 4 + [8] * 4

    actions, is_pad = chunks(data, np.array([0, 2, 7]), 3, ends)
    assert is_pad.tolist() == [[False] * 3, [False, False, True], [False, True, True]]
    np.testing.assert_array_equal(actions[1], data.action[[2, 3, 3]])
    np.testing.assert_array_equal(actions[2], data.action[[7, 7, 7]])


def test_the_same_episodes_are_held_out_when_there_are_more() -> None:
    few, many = (held_out_episodes(tuple(range(count)), 0.1, 3) for count in (100, 200))
    assert few == {number for number in many if number < 100}
    assert 3 <= len(few) <= 20
    assert len(held_out_episodes((0, 1, 2), 0.001, 0)) == 1
    assert held_out_episodes((5,), 0.5, 0) <= {5}
    assert held_out_episodes(tuple(range(100)), 0.0, 0) == frozenset()


def test_what_cannot_be_trained_on_is_named(tmp_path: Path) -> None:
    empty, blind, stateless, grey, broken = (Memory() for _ in range(5))
    empty.frames = []
    blind.features = {k: v for k, v in blind.features.items() if "images" not in k}
    del stateless.features["observation.state"]
    grey.features["observation.images.front"] = Shape((HEIGHT, WIDTH, 1))
    broken.frames[3]["action"] = np.array([0.0, np.nan], np.float32)
    for dataset, message in (
        (empty, "holds no frames"),
        (blind, "has no camera"),
        (stateless, "has no feature 'observation.state'"),
        (grey, r"camera 'front' has images of shape \[32, 48, 1\]"),
        (broken, r"frame 3: action is \[0.0, nan\], expected finite numbers"),
    ):
        with pytest.raises(DataError, match=message):
            read(dataset, tmp_path / message[:12])
