"""What was written is read again, in any order; and what is no sound dataset is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_datasets import EPISODES, FPS, HEIGHT, LENGTHS, TASKS, WIDTH, task_of

from vla_simd_ros.datasets.errors import DatasetError
from vla_simd_ros.datasets.lerobot_v3 import open_dataset

FRONT = "observation.images.front"


def place(index: int) -> tuple[int, int]:
    """Episode and row of a frame."""
    episode = 0
    while index >= LENGTHS[episode]:
        index -= LENGTHS[episode]
        episode += 1
    return episode, index


def change_info(folder: Path, **entries: Any) -> None:
    path = folder / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_description(images: Path) -> None:
    dataset = open_dataset(images)
    assert dataset.fps == FPS
    assert dataset.tasks == TASKS
    assert len(dataset) == sum(LENGTHS)
    assert dataset.features["action"].shape == (3,)
    assert dataset.features["action"].names == ["a.pos", "b.pos", "c.pos"]
    assert dataset.features[FRONT].dtype == "image"
    ends = np.cumsum(LENGTHS).tolist()
    assert [(each.index, each.start, each.end) for each in dataset.episodes] == [
        (0, 0, ends[0]),
        (1, ends[0], ends[1]),
        (2, ends[1], ends[2]),
        (3, ends[2], ends[3]),
    ]
    assert [each.tasks for each in dataset.episodes] == [(task_of(number),) for number in range(4)]
    assert [each.length for each in dataset.episodes] == list(LENGTHS)


def test_frames_in_any_order(images: Path) -> None:
    dataset = open_dataset(images)
    order = np.random.default_rng(0).permutation(len(dataset))
    for index in map(int, order):
        episode, row = place(index)
        frame, written = dataset.frame(index), EPISODES[episode][row]
        for key in ("observation.state", "action"):
            assert frame[key].dtype == np.float32
            np.testing.assert_array_equal(frame[key], written[key])
        assert frame[FRONT].dtype == np.uint8
        np.testing.assert_array_equal(frame[FRONT], written[FRONT])
        assert (frame["episode_index"], frame["frame_index"], frame["index"]) == (episode, row, index)
        assert frame["task"] == task_of(episode)
        assert frame["timestamp"] == pytest.approx(row / FPS)
    dataset.close()


def test_video_frames_in_any_order(videos: Path) -> None:
    dataset = open_dataset(videos)
    order = [*range(len(dataset)), *map(int, np.random.default_rng(0).permutation(len(dataset)))]
    for index in order:
        episode, row = place(index)
        frame, written = dataset.frame(index), EPISODES[episode][row]
        np.testing.assert_array_equal(frame["action"], written["action"])
        assert frame[FRONT].shape == (HEIGHT, WIDTH, 3)
        # Compressed, and still nearer to itself than to any frame beside it.
        distances = [np.abs(frame[FRONT].astype(int) - each[FRONT]).mean() for each in EPISODES[episode]]
        assert distances[row] < 12.0
        same = [np.array_equal(each[FRONT], written[FRONT]) for each in EPISODES[episode]]
        assert same[int(np.argmin(distances))]
    dataset.close()


def test_columns(images: Path) -> None:
    dataset = open_dataset(images)
    written = np.array([frame["action"] for episode in EPISODES for frame in episode])
    np.testing.assert_array_equal(dataset.column("action"), written)
    np.testing.assert_array_equal(dataset.column("episode_index"), np.repeat(np.arange(4), LENGTHS))
    with pytest.raises(
        DatasetError, match=r"column 'observation\.images\.front', expected one of observation"
    ):
        dataset.column(FRONT)
    with pytest.raises(DatasetError, match="column 'speed', expected one of"):
        dataset.column("speed")


def test_statistics_of_all_frames(images: Path) -> None:
    stats = open_dataset(images).stats
    actions = np.array([frame["action"] for episode in EPISODES for frame in episode], np.float64)
    np.testing.assert_allclose(stats["action"]["mean"], actions.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(stats["action"]["std"], actions.std(axis=0), atol=1e-12)
    np.testing.assert_array_equal(stats["action"]["min"], actions.min(axis=0))
    assert stats["action"]["count"] == [sum(LENGTHS)]
    pictures = np.array([frame[FRONT] for episode in EPISODES for frame in episode]) / 255.0
    assert stats[FRONT]["mean"].shape == (3, 1, 1)
    np.testing.assert_allclose(stats[FRONT]["mean"].ravel(), pictures.mean(axis=(0, 1, 2)), atol=1e-12)
    np.testing.assert_allclose(stats[FRONT]["std"].ravel(), pictures.std(axis=(0, 1, 2)), atol=1e-12)


@pytest.mark.parametrize("index", [-1, sum(LENGTHS)])
def test_there_is_no_such_frame(images: Path, index: int) -> None:
    with pytest.raises(DatasetError, match=f"frame {index}, expected one of {sum(LENGTHS)}"):
        open_dataset(images).frame(index)


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no LeRobot dataset, expected a file meta/info\.json"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("v2.1", r"dataset format v2\.1, expected v3\.0; .*convert_dataset_v21_to_v30"),
        ("v2.0", r"dataset format v2\.0, expected v3\.0; .*convert_dataset_v20_to_v21"),
        ("v4.0", r"dataset format v4\.0, expected v3\.0$"),
        (None, "dataset format None"),
    ],
)
def test_other_versions(images: Path, version: str | None, message: str) -> None:
    change_info(images, codebase_version=version)
    with pytest.raises(DatasetError, match=message):
        open_dataset(images)


@pytest.mark.parametrize("text", ["[]", "{", '{"codebase_version": "v3.0", "fps": 30}'])
def test_damaged_description(images: Path, text: str) -> None:
    (images / "meta/info.json").write_text(text)
    with pytest.raises(DatasetError, match=r"info\.json"):
        open_dataset(images)


@pytest.mark.parametrize(
    "file",
    ["data/chunk-000/file-001.parquet", "meta/tasks.parquet", "meta/episodes/chunk-000/file-000.parquet"],
)
def test_damaged_and_missing_files(images: Path, file: str, damage: Callable[[Path], None]) -> None:
    damage(images / file)
    with pytest.raises(DatasetError, match=rf"{file}: cannot be read"):
        open_dataset(images)
    (images / file).unlink()
    with pytest.raises(DatasetError, match=rf"{file}: cannot be read"):
        open_dataset(images)


def test_fewer_frames_than_told(images: Path) -> None:
    first = images / "data/chunk-000/file-000.parquet"
    (images / "data/chunk-000/file-001.parquet").write_bytes(first.read_bytes())
    with pytest.raises(DatasetError, match=r"the data files hold 22 frames, expected 25"):
        open_dataset(images)


def test_damaged_statistics(images: Path) -> None:
    (images / "meta/stats.json").write_text("[1]")
    with pytest.raises(DatasetError, match=r"stats\.json: cannot be read"):
        _ = open_dataset(images).stats


def test_missing_video(videos: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for path in videos.rglob("*"):
        if path.is_file() and path.suffix != ".mp4":
            (copy / path.relative_to(videos)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(videos)).write_bytes(path.read_bytes())
    with pytest.raises(DatasetError, match=r"file-000\.mp4: cannot be read as a video"):
        open_dataset(copy).frame(0)


def test_missing_package_says_what_to_install(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DatasetError, match=r"need 'pyarrow' .*pip install 'vla_simd_ros\[dataset\]'"):
        open_dataset(images)


def test_what_is_appended_later_is_not_seen_before_it_is_opened_again(images: Path) -> None:
    """As while a recording goes on."""
    from vla_simd_ros.datasets.writer import DatasetWriter

    dataset = open_dataset(images)
    writer = DatasetWriter.resume(images)
    writer.add_episode(EPISODES[0], "wave")
    writer.flush()
    assert len(dataset) == sum(LENGTHS)
    assert dataset.frame(24)["task"] == task_of(3)
    again = open_dataset(images)
    assert len(again) == sum(LENGTHS) + LENGTHS[0]
    assert again.frame(25)["task"] == "wave"
    np.testing.assert_array_equal(again.frame(25)["action"], EPISODES[0][0]["action"])
