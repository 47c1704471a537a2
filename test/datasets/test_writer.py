"""What is on disk is a whole dataset at any moment, and bad frames do not get there."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from small_datasets import EPISODES, FPS, LENGTHS, features, make_episode, task_of, write

from vla_simd_ros.datasets import writer as writing
from vla_simd_ros.datasets.errors import DatasetError
from vla_simd_ros.datasets.layout import Feature
from vla_simd_ros.datasets.lerobot_v3 import open_dataset
from vla_simd_ros.datasets.writer import DatasetWriter


def test_files(images: Path) -> None:
    files = {str(path.relative_to(images)) for path in images.rglob("*") if path.is_file()}
    numbers = ("chunk-000/file-000.parquet", "chunk-000/file-001.parquet")
    assert files == {
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        *(f"{folder}/{number}" for folder in ("data", "meta/episodes") for number in numbers),
    }
    info = json.loads((images / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0"
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (4, sum(LENGTHS), 2)
    assert info["fps"] == FPS and isinstance(info["fps"], int)
    assert info["splits"] == {"train": "0:4"}
    assert info["features"]["action"] == {
        "dtype": "float32",
        "shape": [3],
        "names": ["a.pos", "b.pos", "c.pos"],
    }
    assert {"timestamp", "frame_index", "episode_index", "index", "task_index"} < set(info["features"])


def test_every_episode_is_a_row_group(images: Path) -> None:
    described = parquet.ParquetFile(images / "data/chunk-000/file-001.parquet").metadata
    rows = [described.row_group(number).num_rows for number in range(described.num_row_groups)]
    assert rows == [9, 5]


def test_episodes_say_where_they_are(videos: Path) -> None:
    rows = parquet.read_table(videos / "meta/episodes/chunk-000").to_pylist()
    assert [row["data/file_index"] for row in rows] == [0, 0, 0, 1]
    place = "videos/observation.images.front"
    assert [row[f"{place}/file_index"] for row in rows] == [0, 0, 0, 1]
    assert [row[f"{place}/from_timestamp"] for row in rows] == pytest.approx([0.0, 0.7, 1.1, 0.0])
    assert [row[f"{place}/to_timestamp"] for row in rows] == pytest.approx([0.7, 1.1, 2.0, 0.5])
    np.testing.assert_allclose(
        rows[1]["stats/action/mean"],
        np.mean([frame["action"] for frame in EPISODES[1]], axis=0, dtype=np.float64),
        atol=1e-12,
    )


def test_before_a_flush_nothing_is_on_disk(tmp_path: Path) -> None:
    writer = DatasetWriter.create(tmp_path, fps=FPS, features=features("image"))
    writer.add_episode(EPISODES[0], task_of(0))
    assert (writer.episodes, writer.pending, writer.frames) == (0, 1, LENGTHS[0])
    assert len(open_dataset(tmp_path)) == 0
    assert open_dataset(tmp_path).episodes == ()
    writer.flush()
    assert (writer.episodes, writer.pending) == (1, 0)
    assert len(open_dataset(tmp_path)) == LENGTHS[0]
    writer.flush()
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


@pytest.mark.parametrize("interrupted", ["frames", "episodes", "tasks", "stats"])
def test_interruption_of_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str) -> None:
    """Wherever it is, the dataset stays as it was; resumed, it becomes what it would have been."""
    whole = write(tmp_path / "whole", "image")
    writer = DatasetWriter.create(tmp_path / "cut", fps=FPS, features=features("image"), robot_type="test")
    for number in (0, 1):
        writer.add_episode(EPISODES[number], task_of(number))
    writer.flush()
    for number in (2, 3):
        writer.add_episode(EPISODES[number], task_of(number))

    def fail(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if interrupted in ("tasks", "stats"):
            patched.setattr(writing, "write_tasks" if interrupted == "tasks" else "write_json", fail)
        else:
            patched.setattr(DatasetWriter, f"_write_{interrupted}", fail)
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
    assert len(open_dataset(tmp_path / "cut").episodes) == 2
    again = DatasetWriter.resume(tmp_path / "cut")
    assert again.episodes == 2
    for number in (2, 3):
        again.add_episode(EPISODES[number], task_of(number))
    again.flush()
    for path in whole.rglob("*"):
        if path.suffix == ".parquet":
            other = tmp_path / "cut" / path.relative_to(whole)
            assert parquet.read_table(path).equals(parquet.read_table(other))
    first, second = open_dataset(whole).stats, open_dataset(tmp_path / "cut").stats
    for key, stats in first.items():
        for name, value in stats.items():
            np.testing.assert_allclose(second[key][name], value, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "interrupted"),
    [
        ("image", "encode_picture"),
        ("image", "next_file"),
        ("video", "frame_table"),
        ("video", "write_video"),
        ("video", "write_tasks"),
    ],
)
def test_the_same_writer_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, interrupted: str
) -> None:
    """As Ctrl-C does, which comes at any moment of an episode or a flush, and after which what there is is
    put on disk: every episode that was added is there, once, with all of its frames."""
    whole = write(tmp_path / "whole", kind, flush_after=4)
    writer = DatasetWriter.create(tmp_path / "cut", fps=FPS, features=features(kind), robot_type="test")
    writer.add_episode(EPISODES[0], task_of(0))

    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(writing, interrupted, interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            writer.add_episode(EPISODES[1], task_of(1))
            writer.flush()
    added = writer.episodes + writer.pending
    writer.flush()
    assert writer.episodes == added
    for number in range(added, 4):
        writer.add_episode(EPISODES[number], task_of(number))
    writer.flush()
    first, second = open_dataset(whole), open_dataset(tmp_path / "cut")
    assert first.tasks == second.tasks
    assert [each.length for each in second.episodes] == list(LENGTHS)
    assert len(second) == sum(LENGTHS)
    for index in range(len(first)):
        ours, theirs = first.frame(index), second.frame(index)
        for key in ("action", "episode_index", "index", "timestamp", "task"):
            np.testing.assert_array_equal(ours[key], theirs[key])
        pictures = (frame["observation.images.front"].astype(int) for frame in (ours, theirs))
        assert np.abs(np.subtract(*pictures)).mean() <= (0 if kind == "image" else 8)


def test_new_tasks_are_added_when_resumed(images: Path) -> None:
    writer = DatasetWriter.resume(images)
    writer.add_episode(make_episode(9, 3), "wave")
    writer.add_episode(make_episode(10, 3), task_of(0))
    writer.flush()
    dataset = open_dataset(images)
    assert dataset.tasks == (task_of(0), task_of(1), "wave")
    assert [each.tasks[0] for each in dataset.episodes[4:]] == ["wave", task_of(0)]


def test_resumed_video(tmp_path: Path) -> None:
    folder = write(tmp_path, "video", flush_after=4)
    writer = DatasetWriter.resume(folder)
    writer.add_episode(EPISODES[2], task_of(0))
    writer.flush()
    dataset = open_dataset(folder)
    assert dataset.episodes[4].video_files == {"observation.images.front": (0, 1)}
    first, again = (dataset.frame(index)["observation.images.front"] for index in (13, 27))
    assert np.abs(first.astype(int) - again).mean() < 8.0


def test_entries_of_others_are_kept(images: Path) -> None:
    path = images / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tools": [{"name": "say"}]}))
    writer = DatasetWriter.resume(images)
    writer.add_episode(EPISODES[0], task_of(0))
    writer.flush()
    assert json.loads(path.read_text())["tools"] == [{"name": "say"}]


def test_a_folder_that_holds_a_dataset_is_not_overwritten(images: Path) -> None:
    with pytest.raises(DatasetError, match="holds a dataset already, expected a new folder"):
        DatasetWriter.create(images, fps=FPS, features=features("image"))
    assert len(open_dataset(images).episodes) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": np.zeros(4, np.float32)}, r"'action' is float32 \[4\], expected float32 \[3\]"),
        ({"action": np.array(["a", "b", "c"])}, r"'action' is <U1 \[3\], expected float32 \[3\]"),
        (
            {"observation.images.front": np.zeros((24, 32, 3))},
            r"front' is float64 \[24, 32, 3\], expected uint8 \[24, 32, 3\]",
        ),
        ({"observation.images.front": np.zeros((32, 24, 3), np.uint8)}, r"front' is uint8 \[32, 24, 3\]"),
    ],
)
def test_bad_frames(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    writer = DatasetWriter.create(tmp_path, fps=FPS, features=features("image"))
    with pytest.raises(DatasetError, match=message):
        writer.add_episode([EPISODES[0][0], {**EPISODES[0][1], **change}], "x")
    assert (writer.pending, writer.frames) == (0, 0)


def test_missing_value_and_empty_episode(tmp_path: Path) -> None:
    writer = DatasetWriter.create(tmp_path, fps=FPS, features=features("image"))
    with pytest.raises(DatasetError, match=r"frame: got action, expected 'observation\.state' too"):
        writer.add_episode([{"action": np.zeros(3, np.float32)}], "x")
    with pytest.raises(DatasetError, match="episode: got no frames"):
        writer.add_episode([], "x")


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (Feature("complex", (3,)), "feature 'odd': got type 'complex'"),
        (Feature("float32", (2, 2)), r"feature 'odd': got shape \[2, 2\], expected one dimension"),
    ],
)
def test_features_that_cannot_be_written(tmp_path: Path, feature: Feature, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        DatasetWriter.create(tmp_path, fps=FPS, features={"odd": feature})
    assert not (tmp_path / "meta").exists()


def test_full_chunks(tmp_path: Path) -> None:
    """Files are numbered on in the next chunk, and found there."""
    writer = DatasetWriter.create(tmp_path, fps=FPS, features=features("image"))
    path = tmp_path / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chunks_size": 2}))
    for number in range(5):
        writer = DatasetWriter.resume(tmp_path)
        writer.add_episode(EPISODES[number % 4], task_of(number))
        writer.flush()
    assert (tmp_path / "data/chunk-002/file-000.parquet").exists()
    assert not (tmp_path / "data/chunk-000/file-002.parquet").exists()
    dataset = open_dataset(tmp_path)
    assert dataset.frame(len(dataset) - 1)["episode_index"] == 4
