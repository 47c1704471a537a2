"""Demonstrations in the form that training reads them: frames in memory-mapped files, the rest in arrays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints.features import camera_name

STATE, ACTION = "observation.state", "action"
IMAGES = "observation.images."
_PROGRESS_S = 4.0
_INDEX = "index.npz"
_VECTORS = {"state": STATE, "action": ACTION}
_COLUMNS = ("state", "action", "episode", "task", "seen")
_COLOURS = 3


class DataError(ValueError):
    """A dataset cannot be trained on; the message names what is wrong with it."""


class FeatureShape(Protocol):
    """What is asked of a feature's description."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an image height, width and colours."""
        ...


class Frames(Protocol):
    """A dataset of demonstrations, frame by frame."""

    def __len__(self) -> int:
        """Frames of all episodes."""
        ...

    @property
    def features(self) -> Mapping[str, FeatureShape]:
        """What a frame holds."""
        ...

    def frame(self, index: int) -> Mapping[str, Any]:
        """State, action, decoded images, task and episode of one frame."""
        ...


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Every frame's state [n, S], action [n, A], episode [n] and task [n]; images of some of them.

    ``images`` are uint8 [m, H, W, 3] by camera; ``seen`` [m] are the frames they were taken at. Frames are in
    order of time, one episode after the other.
    """

    images: Mapping[str, npt.NDArray[np.uint8]]
    seen: npt.NDArray[np.int64]
    state: npt.NDArray[np.float32]
    action: npt.NDArray[np.float32]
    episode: npt.NDArray[np.int64]
    task: npt.NDArray[np.int64]
    tasks: tuple[str, ...]

    @property
    def episodes(self) -> tuple[int, ...]:
        """The numbers of the episodes."""
        return tuple(int(number) for number in np.unique(self.episode))


def read_demonstrations(
    dataset: Frames,
    cache: Path,
    say: Callable[[str], None],
    *,
    stride: int = 1,
    size: tuple[int, int] | None = None,
) -> Demonstrations:
    """Decode a dataset once into the folder ``cache``; what is there already is used again.

    A cache of a dataset that has grown since is continued. Images are resized to ``size`` (height, width)
    where given. Raises `DataError` for a dataset without state, action or camera.
    """
    if len(dataset) == 0:
        raise DataError("the dataset holds no frames, expected at least one episode")
    store = _Store(cache, _cameras(dataset, size), stride)
    first = store.begin()
    last_said = time.monotonic()
    with store:
        for index in range(first, len(dataset)):
            store.add(index, dataset.frame(index))
            if time.monotonic() - last_said > _PROGRESS_S:
                say(f"decoded {index + 1} of {len(dataset)} frames")
                last_said = time.monotonic()
    return store.read()


def _cameras(dataset: Frames, size: tuple[int, int] | None) -> dict[str, tuple[int, int]]:
    """Height and width of every camera's images, by camera."""
    for name in (STATE, ACTION):
        if name not in dataset.features:
            raise DataError(f"the dataset has no feature '{name}', it has {', '.join(dataset.features)}")
    shapes = {
        camera_name(name): tuple(feature.shape)
        for name, feature in dataset.features.items()
        if name.startswith(IMAGES)
    }
    if not shapes:
        raise DataError(f"the dataset has no camera ({IMAGES}*), it has {', '.join(dataset.features)}")
    for camera, shape in shapes.items():
        if len(shape) != 3 or shape[2] != _COLOURS:
            raise DataError(
                f"camera '{camera}' has images of shape {list(shape)}, expected [height, width, 3]"
            )
    return {camera: size or (shape[0], shape[1]) for camera, shape in shapes.items()}


class _Store:
    """The cache folder: one file of images for each camera, and one of everything else."""

    def __init__(self, folder: Path, cameras: dict[str, tuple[int, int]], stride: int) -> None:
        self._folder = folder
        self._cameras = cameras
        self._stride = stride
        self._files: dict[str, Any] = {}
        self._rows: dict[str, list[Any]] = {}

    def begin(self) -> int:
        """The first frame that is not in the cache yet."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._rows = self._kept() or {name: [] for name in _COLUMNS}
        for camera in self._cameras:
            # More than the index tells of, where an earlier call was interrupted.
            self._path(camera).touch()
            os.truncate(self._path(camera), self._bytes(camera))
        return len(self._rows["episode"])

    def _kept(self) -> dict[str, list[Any]] | None:
        """What an earlier call has stored, if it was for the same images."""
        path = self._folder / _INDEX
        if not path.is_file():
            return None
        with np.load(path) as index:
            if str(index["layout"]) != self._layout():
                return None
            self._rows = {name: list(index[name]) for name in _COLUMNS}
        whole = all(
            self._path(camera).is_file() and self._path(camera).stat().st_size >= self._bytes(camera)
            for camera in self._cameras
        )
        return self._rows if whole else None

    def _layout(self) -> str:
        return json.dumps([self._cameras, self._stride])

    def _bytes(self, camera: str) -> int:
        height, width = self._cameras[camera]
        return len(self._rows["seen"]) * height * width * _COLOURS

    def __enter__(self) -> _Store:
        self._files = {camera: self._path(camera).open("ab") for camera in self._cameras}
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        columns = {name: np.array(values) for name, values in self._rows.items()}
        save_arrays(self._folder / _INDEX, {**columns, "layout": np.array(self._layout())})

    def add(self, index: int, frame: Mapping[str, Any]) -> None:
        """Append a frame; values that nothing can be learned from raise `DataError`."""
        rows = self._rows
        vectors = {name: np.asarray(frame[key], np.float32) for name, key in _VECTORS.items()}
        for name, values in vectors.items():
            if not np.isfinite(values).all():
                raise DataError(
                    f"frame {index}: {_VECTORS[name]} is {values.tolist()}, expected finite numbers"
                )
        task, episode = str(frame["task"]), int(frame["episode_index"])
        if index % self._stride == 0:
            for camera, size in self._cameras.items():
                self._files[camera].write(_image(frame, camera, size).tobytes())
            rows["seen"].append(index)
        for name, values in vectors.items():
            rows[name].append(values)
        rows["episode"].append(episode)
        rows["task"].append(task)

    def read(self) -> Demonstrations:
        """What the folder holds now."""
        rows = self._rows
        images: dict[str, npt.NDArray[np.uint8]] = {
            camera: np.memmap(self._path(camera), np.uint8, "r", shape=(len(rows["seen"]), *size, _COLOURS))
            for camera, size in self._cameras.items()
        }
        tasks, task = np.unique(rows["task"], return_inverse=True)
        return Demonstrations(
            images,
            np.array(rows["seen"], np.int64),
            np.array(rows["state"], np.float32),
            np.array(rows["action"], np.float32),
            np.array(rows["episode"], np.int64),
            task.astype(np.int64),
            tuple(map(str, tasks)),
        )

    def _path(self, camera: str) -> Path:
        return self._folder / f"{camera}.u8"


def save_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """An .npz file; an interrupted write leaves the one before."""
    partial = path.with_name(f"partial.{path.name}")
    saved: dict[str, Any] = dict(arrays)
    np.savez(partial, **saved)
    partial.replace(path)


def _image(frame: Mapping[str, Any], camera: str, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    image: npt.NDArray[np.uint8] = np.ascontiguousarray(frame[IMAGES + camera])
    if image.shape[:2] == size:
        return image
    return np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA), np.uint8)


def episode_ends(episode: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For every frame, one more than the last frame of its episode."""
    changes = np.flatnonzero(np.diff(episode)) + 1
    stops = np.append(changes, len(episode))
    return np.asarray(stops[np.searchsorted(changes, np.arange(len(episode)), side="right")])


def chunks(
    demonstrations: Demonstrations, frames: npt.NDArray[np.int64], length: int, ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Actions [b, length, A] from each of ``frames`` on, and which are padding [b, length].

    Behind the end of an episode its last action is repeated.
    """
    rows = frames[:, None] + np.arange(length)
    stop = ends[frames][:, None]
    return demonstrations.action[np.minimum(rows, stop - 1)], rows >= stop


def held_out_episodes(episodes: tuple[int, ...], share: float, seed: int) -> frozenset[int]:
    """About a ``share`` of the episodes, at least one where there are two; more episodes change no choice."""
    draws = {number: np.random.default_rng([seed, number]).random() for number in episodes}
    chosen = frozenset(number for number, draw in draws.items() if draw < share)
    if not chosen and share > 0 and len(episodes) > 1:
        chosen = frozenset({min(draws, key=lambda number: draws[number])})
    return chosen
