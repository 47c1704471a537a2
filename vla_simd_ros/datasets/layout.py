"""Where things are in a dataset's folder, and its description in meta/info.json.

meta/info.json            features, frame rate, totals, where the files are
meta/stats.json           statistics of every feature over all frames
meta/tasks.parquet        sentences and their numbers
meta/episodes/...parquet  one row per episode: tasks, length, its files, its statistics
data/...parquet           one row per frame
videos/KEY/...mp4         pictures of the features that are stored as videos
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_simd_ros.datasets.errors import DatasetError

VERSION = "v3.0"
INFO = Path("meta/info.json")
STATS = Path("meta/stats.json")
TASKS = Path("meta/tasks.parquet")
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEOS = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
FILES_PER_CHUNK = 1000
PICTURES = ("image", "video")
"""The types of features that are pictures: as PNG in the rows, or in a video beside them."""


@dataclass(frozen=True)
class Feature:
    """One value per frame. `names` tells its elements apart: of a picture height, width, channels."""

    dtype: str
    shape: tuple[int, ...]
    names: Any = None
    info: Mapping[str, Any] | None = None

    @property
    def is_picture(self) -> bool:
        return self.dtype in PICTURES

    def as_json(self) -> dict[str, Any]:
        described = {"dtype": self.dtype, "shape": list(self.shape), "names": self.names}
        return described if self.info is None else {**described, "info": dict(self.info)}


INDEX_FEATURES: dict[str, Feature] = {
    "timestamp": Feature("float32", (1,)),
    "frame_index": Feature("int64", (1,)),
    "episode_index": Feature("int64", (1,)),
    "index": Feature("int64", (1,)),
    "task_index": Feature("int64", (1,)),
}
"""What every dataset has beside its own features."""


@dataclass(frozen=True)
class Info:
    """What meta/info.json says."""

    fps: float
    features: Mapping[str, Feature]
    robot_type: str | None = None
    total_episodes: int = 0
    total_frames: int = 0
    total_tasks: int = 0
    data_path: str = DATA
    video_path: str | None = VIDEOS
    chunks_size: int = FILES_PER_CHUNK
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Entries of no use here, kept when the file is written again."""

    def as_json(self) -> dict[str, Any]:
        own = {each.name for each in dataclasses.fields(self)} - {"features", "rest"}
        return {
            "codebase_version": VERSION,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            **self.rest,
            **{name: getattr(self, name) for name in own},
            "fps": int(self.fps) if float(self.fps).is_integer() else self.fps,
            "splits": {"train": f"0:{self.total_episodes}"},
            "features": {key: feature.as_json() for key, feature in self.features.items()},
        }

    @property
    def video_keys(self) -> tuple[str, ...]:
        return tuple(key for key, feature in self.features.items() if feature.dtype == "video")

    @property
    def image_keys(self) -> tuple[str, ...]:
        return tuple(key for key, feature in self.features.items() if feature.dtype == "image")


def read_info(folder: Path) -> Info:
    """Raises DatasetError when the folder holds no dataset, one of another version, or a damaged one."""
    path = folder / INFO
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(f"{folder}: no LeRobot dataset, expected a file {INFO}") from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    if not isinstance(entries, dict):
        raise DatasetError(f"{path}: got {type(entries).__name__}, expected a JSON object")
    _check_version(path, entries.get("codebase_version"))
    try:
        return _info(entries)
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{path}: {type(error).__name__}: {error}, expected LeRobot's {VERSION}"
        ) from error


def _check_version(path: Path, version: Any) -> None:
    if isinstance(version, str) and version.startswith("v3."):
        return
    hint = ""
    if isinstance(version, str) and version.startswith("v2."):
        hint = "; LeRobot converts it: python -m lerobot.scripts.convert_dataset_v21_to_v30 --repo-id=NAME"
        if not version.startswith("v2.1"):
            hint = "; LeRobot up to 0.3 converts it to v2.1 (convert_dataset_v20_to_v21), later ones to v3.0"
    raise DatasetError(f"{path}: dataset format {version}, expected {VERSION}{hint}")


def _info(entries: dict[str, Any]) -> Info:
    features = {
        key: Feature(str(each["dtype"]), tuple(each["shape"]), each.get("names"), each.get("info"))
        for key, each in entries.pop("features").items()
    }
    known = {each.name for each in dataclasses.fields(Info)} - {"features", "rest"}
    info = Info(
        features=features,
        **{key: entries[key] for key in known & set(entries)},
        rest={key: value for key, value in entries.items() if key not in known},
    )
    if not info.fps > 0:
        raise ValueError(f"fps {info.fps} is not positive")
    return info


def write_json(path: Path, content: Any) -> None:
    """Replaces the file as a whole: whoever reads it meanwhile sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")
    draft.write_text(json.dumps(content, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(draft, path)


def next_file(chunk: int, file: int, files_per_chunk: int) -> tuple[int, int]:
    """The chunk and file number after those."""
    return (chunk, file + 1) if file + 1 < files_per_chunk else (chunk + 1, 0)
