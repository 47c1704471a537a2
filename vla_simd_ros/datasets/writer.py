"""Writes a dataset episode by episode, so that what is on disk is a whole dataset at any moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.datasets import statistics
from vla_simd_ros.datasets.errors import DatasetError, load_package
from vla_simd_ros.datasets.layout import (
    EPISODES,
    INDEX_FEATURES,
    INFO,
    STATS,
    TASKS,
    Feature,
    Info,
    next_file,
    read_info,
    write_json,
)
from vla_simd_ros.datasets.statistics import Statistics
from vla_simd_ros.datasets.tables import (
    Picture,
    encode_picture,
    frame_schema,
    frame_table,
    numbered,
    read_episodes,
    read_tasks,
    write_table,
    write_tasks,
)
from vla_simd_ros.datasets.video import describe_video, write_video

Frame = Mapping[str, Any]
"""A frame's values by feature: arrays of the feature's shape, pictures RGB [height, width, 3]."""


class DatasetWriter:
    """Collects episodes; `flush` puts them on disk as new files, after which they are part of the dataset.

    Nothing that is on disk already is changed but the small files that tell what there is, which are replaced
    as a whole, meta/info.json last. So an interruption loses at most the episodes since the last `flush`.
    """

    def __init__(self, folder: Path, info: Info) -> None:
        """Use `create` or `resume`."""
        self._folder = folder
        self._info = info
        self._schema = frame_schema(info.features)
        self._tasks: list[str] = []
        self._stats: dict[str, Statistics] = {}
        self._next_file = (0, 0)
        self._tables: list[Any] = []
        self._rows: list[dict[str, Any]] = []
        self._videos: dict[str, list[Picture]] = {key: [] for key in info.video_keys}

    @classmethod
    def create(
        cls, folder: Path, *, fps: float, features: Mapping[str, Feature], robot_type: str | None = None
    ) -> DatasetWriter:
        """A new dataset with these features besides those that every dataset has.

        Raises DatasetError when the folder holds one already, or for a feature that cannot be written.
        """
        if (folder / INFO).exists():
            raise DatasetError(f"{folder}: holds a dataset already, expected a new folder (or to resume it)")
        own = {key: _described(feature, fps) for key, feature in features.items()}
        writer = cls(folder, Info(fps=fps, features={**own, **INDEX_FEATURES}, robot_type=robot_type))
        write_json(folder / INFO, writer._info.as_json())
        return writer

    @classmethod
    def resume(cls, folder: Path) -> DatasetWriter:
        """Goes on after the last episode of a dataset. Raises DatasetError when it is none or damaged."""
        writer = cls(folder, read_info(folder))
        if writer.episodes:
            writer._tasks = list(read_tasks(folder / TASKS))
            writer._read_statistics()
        return writer

    def _read_statistics(self) -> None:
        """Merges those of the episodes on disk, and finds the number of the next file."""
        rows = read_episodes(self._folder, self._info)
        parts = [_statistics_of(row, self._info.features) for row in rows]
        self._stats = {key: statistics.merged([part[key] for part in parts]) for key in parts[0]}
        self._next_file = next_file(*max(_last_file(row) for row in rows), self._info.chunks_size)

    @property
    def episodes(self) -> int:
        """Episodes on disk."""
        return self._info.total_episodes

    @property
    def pending(self) -> int:
        """Episodes that `flush` would write."""
        return len(self._rows)

    @property
    def frames(self) -> int:
        """Frames of the episodes on disk and collected."""
        return int(self._rows[-1]["dataset_to_index"]) if self._rows else self._info.total_frames

    @property
    def features(self) -> Mapping[str, Feature]:
        return self._info.features

    @property
    def fps(self) -> float:
        return self._info.fps

    def add_episode(self, frames: Sequence[Frame], task: str) -> None:
        """Appends an episode in which `task` was done.

        Raises DatasetError when it is empty, or a frame lacks a feature or has one of another shape.
        """
        if not frames:
            raise DatasetError("episode: got no frames, expected at least one")
        if task not in self._tasks:
            self._tasks.append(task)
        own = {key: each for key, each in self._info.features.items() if key not in INDEX_FEATURES}
        values = {key: [_checked(frame, key, feature) for frame in frames] for key, feature in own.items()}
        start = self.frames
        episode = self.episodes + self.pending
        columns: dict[str, Any] = {**values, **self._indices(len(frames), start, episode, task)}
        stats = {key: _statistics(columns[key], feature) for key, feature in self._info.features.items()}
        row = {
            "episode_index": episode,
            "tasks": [task],
            "length": len(frames),
            "dataset_from_index": start,
            "dataset_to_index": start + len(frames),
        }
        self._rows.append({**row, **self._take_videos(values), **_flat(stats)})
        encoded = {key: [encode_picture(each) for each in values[key]] for key in self._info.image_keys}
        self._tables.append(frame_table(self._schema, {**columns, **encoded}))
        parts = {key: [self._stats[key], part] if self._stats else [part] for key, part in stats.items()}
        self._stats = {key: statistics.merged(both) for key, both in parts.items()}

    def _indices(self, length: int, start: int, episode: int, task: str) -> dict[str, npt.NDArray[Any]]:
        numbers = np.arange(length)
        return {
            "timestamp": (numbers / self._info.fps).astype(np.float32),
            "frame_index": numbers,
            "episode_index": np.full(length, episode),
            "index": start + numbers,
            "task_index": np.full(length, self._tasks.index(task)),
        }

    def _take_videos(self, values: Mapping[str, list[Any]]) -> dict[str, float]:
        """Keeps the pictures for the next video files; where in them they will be."""
        places: dict[str, float] = {}
        for key, pictures in self._videos.items():
            first = len(pictures)
            pictures.extend(values[key])
            places[f"videos/{key}/from_timestamp"] = first / self._info.fps
            places[f"videos/{key}/to_timestamp"] = len(pictures) / self._info.fps
        return places

    def flush(self) -> None:
        """Puts the collected episodes on disk; from then on readers of the dataset see them."""
        if not self._rows:
            return
        self._write_frames()
        self._write_episodes()
        write_tasks(self._folder / TASKS, self._tasks)
        listed = {key: _listed(each) for key, each in self._stats.items()}
        write_json(self._folder / STATS, listed)
        self._info = dataclasses.replace(
            self._info,
            total_episodes=self.episodes + self.pending,
            total_frames=self.frames,
            total_tasks=len(self._tasks),
        )
        write_json(self._folder / INFO, self._info.as_json())
        self._next_file = next_file(*self._next_file, self._info.chunks_size)
        self._tables, self._rows = [], []
        self._videos = {key: [] for key in self._videos}

    def _write_frames(self) -> None:
        write_table(self._folder / numbered(self._info.data_path, self._next_file), self._tables)
        for key, pictures in self._videos.items():
            assert self._info.video_path is not None, "a dataset with videos says where they are"
            path = numbered(self._info.video_path, self._next_file, video_key=key)
            write_video(self._folder / path, pictures, self._info.fps)

    def _write_episodes(self) -> None:
        chunk, file = self._next_file
        places = ["data", "meta/episodes", *(f"videos/{key}" for key in self._videos)]
        numbers = {f"{place}/chunk_index": chunk for place in places}
        numbers.update({f"{place}/file_index": file for place in places})
        table = load_package("pyarrow").Table.from_pylist([{**row, **numbers} for row in self._rows])
        write_table(self._folder / numbered(EPISODES, self._next_file), [table])


def _described(feature: Feature, fps: float) -> Feature:
    if feature.dtype != "video":
        return feature
    height, width = feature.shape[:2]
    return Feature(feature.dtype, feature.shape, feature.names, describe_video(height, width, fps))


def _checked(frame: Frame, key: str, feature: Feature) -> npt.NDArray[Any]:
    if key not in frame:
        raise DatasetError(f"frame: got {', '.join(frame)}, expected '{key}' too")
    value = np.asarray(frame[key])
    kind = np.uint8 if feature.is_picture else np.dtype(feature.dtype)
    if value.shape != feature.shape or not np.can_cast(value.dtype, kind, "same_kind"):
        expected = f"{np.dtype(kind)} {list(feature.shape)}"
        raise DatasetError(f"frame: '{key}' is {value.dtype} {list(value.shape)}, expected {expected}")
    return np.array(value, kind)


def _statistics(values: Any, feature: Feature) -> Statistics:
    return statistics.of_pictures(values) if feature.is_picture else statistics.of_vectors(np.stack(values))


def _listed(stats: Statistics) -> dict[str, Any]:
    return {name: value.tolist() for name, value in stats.items()}


def _flat(stats: Mapping[str, Statistics]) -> dict[str, Any]:
    """By column of the episodes' table."""
    return {
        f"stats/{key}/{name}": value for key, each in stats.items() for name, value in _listed(each).items()
    }


def _statistics_of(row: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, Statistics]:
    """The inverse of `_flat`."""
    found: dict[str, Statistics] = {key: {} for key in features}
    for column, value in row.items():
        owner, _, name = column.removeprefix("stats/").rpartition("/")
        if column.startswith("stats/") and owner in found:
            found[owner][name] = np.array(value)
    return found


def _last_file(row: Mapping[str, Any]) -> tuple[int, int]:
    """The highest chunk and file number among those in which an episode is."""
    places = [column.removesuffix("/chunk_index") for column in row if column.endswith("/chunk_index")]
    return max((int(row[f"{place}/chunk_index"]), int(row[f"{place}/file_index"])) for place in places)
