"""Writes a dataset episode by episode, so that what is on disk is a whole dataset at any moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class _Episode:
    """A collected one: its line in the table of episodes, its frames, and its pictures for video files."""

    row: Mapping[str, Any]
    table: Any
    pictures: Mapping[str, Sequence[Picture]]
    stats: Mapping[str, Statistics]
    task: str


@dataclass(frozen=True)
class _State:
    """What is on disk, and the episodes that are not. It changes by being replaced, so that an interruption,
    which may come between any two statements, finds all of an episode or nothing."""

    info: Info
    tasks: tuple[str, ...] = ()
    stats: Mapping[str, Statistics] = field(default_factory=dict)
    next_file: tuple[int, int] = (0, 0)
    pending: tuple[_Episode, ...] = ()


class DatasetWriter:
    """Collects episodes; `flush` puts them on disk as new files, after which they are part of the dataset.

    Nothing that is on disk already is changed but the small files that tell what there is, which are replaced
    as a whole, meta/info.json last. So an interruption loses at most the episodes since the last `flush`, and
    after one of `add_episode` or `flush` the next `flush` writes every episode that was added.
    """

    def __init__(self, folder: Path, info: Info) -> None:
        """Use `create` or `resume`."""
        self._folder = folder
        self._schema = frame_schema(info.features)
        self._state = _State(info)

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
        write_json(folder / INFO, writer._state.info.as_json())
        return writer

    @classmethod
    def resume(cls, folder: Path) -> DatasetWriter:
        """Goes on after the last episode of a dataset. Raises DatasetError when it is none or damaged."""
        writer = cls(folder, read_info(folder))
        if writer.episodes:
            writer._state = _state_on_disk(folder, writer._state.info)
        return writer

    @property
    def episodes(self) -> int:
        """Episodes on disk."""
        return self._state.info.total_episodes

    @property
    def pending(self) -> int:
        """Episodes that `flush` would write."""
        return len(self._state.pending)

    @property
    def frames(self) -> int:
        """Frames of the episodes on disk and collected."""
        pending = self._state.pending
        return int(pending[-1].row["dataset_to_index"]) if pending else self._state.info.total_frames

    @property
    def features(self) -> Mapping[str, Feature]:
        return self._state.info.features

    @property
    def fps(self) -> float:
        return self._state.info.fps

    def add_episode(self, frames: Sequence[Frame], task: str) -> None:
        """Appends an episode in which `task` was done.

        Raises DatasetError when it is empty, or a frame lacks a feature or has one of another shape.
        """
        if not frames:
            raise DatasetError("episode: got no frames, expected at least one")
        state, info = self._state, self._state.info
        own = {key: each for key, each in info.features.items() if key not in INDEX_FEATURES}
        values = {key: [_checked(frame, key, feature) for frame in frames] for key, feature in own.items()}
        columns: dict[str, Any] = {**values, **self._indices(len(frames), task)}
        stats = {key: _statistics(columns[key], feature) for key, feature in info.features.items()}
        row = {
            "episode_index": self.episodes + self.pending,
            "tasks": [task],
            "length": len(frames),
            "dataset_from_index": self.frames,
            "dataset_to_index": self.frames + len(frames),
        }
        encoded = {key: [encode_picture(each) for each in values[key]] for key in info.image_keys}
        table = frame_table(self._schema, {**columns, **encoded})
        pictures = {key: values[key] for key in info.video_keys}
        row = {**row, **self._places(pictures), **_flat(stats)}
        episode = _Episode(row, table, pictures, stats, task)
        self._state = dataclasses.replace(state, pending=(*state.pending, episode))

    def _indices(self, length: int, task: str) -> dict[str, npt.NDArray[Any]]:
        """The columns that every dataset has, of the next episode."""
        numbers = np.arange(length)
        tasks = _tasks([*self._tasks(), task])
        return {
            "timestamp": (numbers / self.fps).astype(np.float32),
            "frame_index": numbers,
            "episode_index": np.full(length, self.episodes + self.pending),
            "index": self.frames + numbers,
            "task_index": np.full(length, tasks.index(task)),
        }

    def _tasks(self) -> tuple[str, ...]:
        """Of the episodes on disk and collected."""
        return _tasks([*self._state.tasks, *(episode.task for episode in self._state.pending)])

    def _places(self, pictures: Mapping[str, Sequence[Picture]]) -> dict[str, float]:
        """Where in the next video files the pictures of the next episode will be."""
        places: dict[str, float] = {}
        for key, own in pictures.items():
            first = sum(len(episode.pictures[key]) for episode in self._state.pending)
            places[f"videos/{key}/from_timestamp"] = first / self.fps
            places[f"videos/{key}/to_timestamp"] = (first + len(own)) / self.fps
        return places

    def flush(self) -> None:
        """Puts the collected episodes on disk; from then on readers of the dataset see them."""
        state = self._state
        if not state.pending:
            return
        self._write_frames()
        self._write_episodes()
        tasks, stats = self._tasks(), self._stats()
        write_tasks(self._folder / TASKS, tasks)
        write_json(self._folder / STATS, {key: _listed(each) for key, each in stats.items()})
        info = dataclasses.replace(
            state.info,
            total_episodes=self.episodes + self.pending,
            total_frames=self.frames,
            total_tasks=len(tasks),
        )
        write_json(self._folder / INFO, info.as_json())
        self._state = _State(info, tasks, stats, next_file(*state.next_file, info.chunks_size))

    def _stats(self) -> Mapping[str, Statistics]:
        """Of the episodes on disk and collected."""
        state = self._state
        parts = [*([state.stats] if state.stats else []), *(episode.stats for episode in state.pending)]
        return {key: statistics.merged([part[key] for part in parts]) for key in parts[0]}

    def _write_frames(self) -> None:
        state, info = self._state, self._state.info
        tables = [episode.table for episode in state.pending]
        write_table(self._folder / numbered(info.data_path, state.next_file), tables)
        for key in info.video_keys:
            assert info.video_path is not None, "a dataset with videos says where they are"
            path = numbered(info.video_path, state.next_file, video_key=key)
            pictures = [picture for episode in state.pending for picture in episode.pictures[key]]
            write_video(self._folder / path, pictures, info.fps)

    def _write_episodes(self) -> None:
        state = self._state
        chunk, file = state.next_file
        places = ["data", "meta/episodes", *(f"videos/{key}" for key in state.info.video_keys)]
        numbers = {f"{place}/chunk_index": chunk for place in places}
        numbers.update({f"{place}/file_index": file for place in places})
        rows = [{**episode.row, **numbers} for episode in state.pending]
        table = load_package("pyarrow").Table.from_pylist(rows)
        write_table(self._folder / numbered(EPISODES, state.next_file), [table])


def _state_on_disk(folder: Path, info: Info) -> _State:
    """Tasks, statistics of all episodes, and the number of the next file."""
    rows = read_episodes(folder, info)
    parts = [_statistics_of(row, info.features) for row in rows]
    stats = {key: statistics.merged([part[key] for part in parts]) for key in parts[0]}
    following = next_file(*max(_last_file(row) for row in rows), info.chunks_size)
    return _State(info, tuple(read_tasks(folder / TASKS)), stats, following)


def _tasks(texts: Sequence[str]) -> tuple[str, ...]:
    """Each once, in the order of their first occurrence."""
    return tuple(dict.fromkeys(texts))


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
