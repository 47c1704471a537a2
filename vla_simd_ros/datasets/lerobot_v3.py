"""Reads a dataset in LeRobot's format v3, whoever wrote it, frame by frame in any order."""

from __future__ import annotations

import bisect
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vla_simd_ros.datasets.errors import DatasetError
from vla_simd_ros.datasets.layout import STATS, TASKS, Feature, Info, read_info
from vla_simd_ros.datasets.tables import decode_picture, numbered, open_table, read_episodes, read_tasks
from vla_simd_ros.datasets.video import VideoReader

_T = TypeVar("_T")

_KEPT_ROW_GROUPS = 16
_KEPT_VIDEOS = 8


@dataclass(frozen=True)
class Episode:
    """One demonstration: its frames are `start` up to but without `end`."""

    index: int
    tasks: tuple[str, ...]
    start: int
    end: int
    data_file: tuple[int, int]
    video_files: Mapping[str, tuple[int, int]]
    video_starts: Mapping[str, float]
    """Seconds from the start of the video file."""

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class _RowGroup:
    """Rows of a data file that are read together; `start` is the number of its first frame in the dataset."""

    start: int
    end: int
    path: Path
    number: int


class LeRobotDataset:
    """An open dataset. What is appended to it later is seen when it is opened again. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Raises DatasetError when the folder holds no dataset, one of another version, or a damaged one."""
        self.folder = folder
        self._info = read_info(folder)
        total = self._info.total_episodes
        self.tasks: tuple[str, ...] = read_tasks(folder / TASKS) if total else ()
        self.episodes: tuple[Episode, ...] = tuple(
            _episode(row, self._info, folder) for row in (read_episodes(folder, self._info) if total else ())
        )
        self._groups = self._find_row_groups()
        self._group_starts = [group.start for group in self._groups]
        self._tables: OrderedDict[Any, Any] = OrderedDict()
        self._videos: OrderedDict[Any, VideoReader] = OrderedDict()

    @property
    def features(self) -> Mapping[str, Feature]:
        """Types and shapes by name; pictures are RGB [height, width, channels], whatever their names say."""
        return self._info.features

    @property
    def fps(self) -> float:
        """Frames per second."""
        return self._info.fps

    @property
    def stats(self) -> dict[str, dict[str, npt.NDArray[np.float64]]]:
        """Statistics over all frames: min, max, mean, std, count and quantiles, by feature.

        Raises DatasetError when the file is missing or damaged.
        """
        path = self.folder / STATS
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
            return {
                key: {name: np.atleast_1d(np.array(value, np.float64)) for name, value in each.items()}
                for key, each in entries.items()
            }
        except (OSError, ValueError, AttributeError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from error

    def __len__(self) -> int:
        return self.episodes[-1].end if self.episodes else 0

    def frame(self, index: int) -> dict[str, Any]:
        """All features of a frame: arrays, numbers, pictures (RGB uint8 [height, width, 3]); and its `task`.

        Raises DatasetError for an index that there is not, or a damaged file.
        """
        group = self._group(index)
        table, row = self._table(group), index - group.start
        values: dict[str, Any] = {}
        for key, feature in self.features.items():
            if feature.dtype != "video":
                values[key] = self._value(table, row, key, feature, group.path)
        episode = self.episodes[int(values["episode_index"])]
        for key in self._info.video_keys:
            values[key] = self._video_picture(episode, key, float(values["timestamp"]))
        values["task"] = self.tasks[int(values["task_index"])]
        return values

    def column(self, key: str) -> npt.NDArray[Any]:
        """A feature of all frames at once: [n] of numbers, [n, m] of vectors.

        Raises DatasetError for an unknown feature, and for pictures, which are read by `frame`.
        """
        if key not in self.features or self.features[key].is_picture:
            known = ", ".join(each for each, feature in self.features.items() if not feature.is_picture)
            raise DatasetError(f"{self.folder}: column '{key}', expected one of {known}")
        paths = dict.fromkeys(group.path for group in self._groups)
        parts = [_numbers(open_table(path).read([key]).column(key), self.features[key]) for path in paths]
        every = np.concatenate(parts) if parts else np.zeros((0, *_row_shape(self.features[key])))
        return np.asarray(every[: len(self)])

    def close(self) -> None:
        """Closes the files that are kept open."""
        for video in self._videos.values():
            video.close()
        self._videos.clear()
        self._tables.clear()

    # --- rows -------------------------------------------------------------------------------------

    def _find_row_groups(self) -> list[_RowGroup]:
        """In the order of their frames, which is that of the episodes and of the files' numbers."""
        groups: list[_RowGroup] = []
        for file in dict.fromkeys(episode.data_file for episode in self.episodes):
            path = self.folder / numbered(self._info.data_path, file)
            start = next(episode.start for episode in self.episodes if episode.data_file == file)
            described = open_table(path).metadata
            for number in range(described.num_row_groups):
                rows = described.row_group(number).num_rows
                groups.append(_RowGroup(start, start + rows, path, number))
                start += rows
        if self.episodes and (not groups or groups[-1].end < len(self)):
            got = groups[-1].end if groups else 0
            raise DatasetError(f"{self.folder}: the data files hold {got} frames, expected {len(self)}")
        return groups

    def _group(self, index: int) -> _RowGroup:
        if not 0 <= index < len(self):
            raise DatasetError(f"{self.folder}: frame {index}, expected one of {len(self)}")
        return self._groups[bisect.bisect_right(self._group_starts, index) - 1]

    def _table(self, group: _RowGroup) -> Any:
        key = group.path, group.number
        return _kept(
            self._tables, key, _KEPT_ROW_GROUPS, lambda: open_table(group.path).read_row_group(group.number)
        )

    def _value(self, table: Any, row: int, key: str, feature: Feature, path: Path) -> Any:
        if key not in table.column_names:
            raise DatasetError(f"{path}: got columns {', '.join(table.column_names)}, expected '{key}' too")
        value = table.column(key)[row].as_py()
        if feature.dtype == "image":
            if not isinstance(value, dict) or not value.get("bytes"):
                raise DatasetError(
                    f"{path}: '{key}' of row {row} holds no picture, expected one in its bytes"
                )
            return decode_picture(value["bytes"], f"{path}: '{key}' of row {row}")
        if feature.dtype in ("string", "language") or feature.shape in ((1,), ()):
            return value
        return np.asarray(value, np.dtype(feature.dtype))

    # --- videos -----------------------------------------------------------------------------------

    def _video_picture(self, episode: Episode, key: str, time: float) -> npt.NDArray[np.uint8]:
        assert self._info.video_path is not None, "checked with the episodes"
        path = self.folder / numbered(self._info.video_path, episode.video_files[key], video_key=key)
        video = _kept(self._videos, path, _KEPT_VIDEOS, lambda: VideoReader(path, self.fps))
        return video.picture(episode.video_starts[key] + time)


def open_dataset(folder: Path) -> LeRobotDataset:
    """The dataset in a folder. Raises DatasetError as `LeRobotDataset` does."""
    return LeRobotDataset(folder)


def _episode(row: Mapping[str, Any], info: Info, folder: Path) -> Episode:
    if info.video_keys and info.video_path is None:
        raise DatasetError(f"{folder}: has videos ({', '.join(info.video_keys)}) and no video_path")
    try:
        return Episode(
            index=int(row["episode_index"]),
            tasks=tuple(row["tasks"]),
            start=int(row["dataset_from_index"]),
            end=int(row["dataset_to_index"]),
            data_file=_file(row, "data"),
            video_files={key: _file(row, f"videos/{key}") for key in info.video_keys},
            video_starts={key: float(row[f"videos/{key}/from_timestamp"]) for key in info.video_keys},
        )
    except (KeyError, TypeError) as error:
        raise DatasetError(f"{folder}: the table of episodes lacks {error}") from error


def _file(row: Mapping[str, Any], place: str) -> tuple[int, int]:
    return int(row[f"{place}/chunk_index"]), int(row[f"{place}/file_index"])


def _numbers(column: Any, feature: Feature) -> npt.NDArray[Any]:
    if feature.shape in ((1,), ()):
        return np.asarray(column.to_numpy())
    flat = np.concatenate([chunk.flatten().to_numpy() for chunk in column.chunks])
    return np.asarray(flat.reshape(-1, *feature.shape))


def _row_shape(feature: Feature) -> tuple[int, ...]:
    return () if feature.shape in ((1,), ()) else feature.shape


def _kept(cache: OrderedDict[Any, _T], key: Any, limit: int, make: Callable[[], _T]) -> _T:
    """The cached value, made if need be; the one that was used longest ago makes room."""
    if key not in cache:
        cache[key] = make()
        if len(cache) > limit:
            _, old = cache.popitem(last=False)
            if isinstance(old, VideoReader):
                old.close()
    cache.move_to_end(key)
    return cache[key]
