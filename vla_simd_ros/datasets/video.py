"""Pictures in MP4 files: encoded as LeRobot does, and decoded one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.datasets.errors import DatasetError, load_package
from vla_simd_ros.datasets.tables import Picture
from vla_simd_ros.thread_scheduling import kept_scheduling

_CODEC = "libsvtav1"
_PIXELS = "yuv420p"
# Every other picture stands alone, so that single ones are found fast.
_KEY_INTERVAL = 2
_OPTIONS = {"g": str(_KEY_INTERVAL), "crf": "30", "preset": "12", "svtav1-params": "fast-decode=0:lp=1"}
_SKIP = 1.0
"""Seconds ahead that are decoded through rather than jumped over."""


def _load_av() -> Any:
    """PyAV, told to speak of errors only; the encoder takes its word from the environment."""
    os.environ.setdefault("SVT_LOG", "1")
    av = load_package("av")
    av.logging.set_level(av.logging.ERROR)
    return av


def write_video(path: Path, pictures: Iterable[Picture], fps: float) -> None:
    """Replaces the file as a whole by the pictures, one after the other.

    Raises DatasetError when the encoder is missing or refuses the pictures' size.
    """
    av = _load_av()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.stem}.part.mp4")
    try:
        with av.open(str(draft), "w") as container:
            stream: Any = None
            for picture in pictures:
                if stream is None:
                    stream = _add_stream(container, picture, fps)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    except (av.FFmpegError, ValueError) as error:
        draft.unlink(missing_ok=True)
        raise DatasetError(f"{path}: cannot be encoded: {error}") from error
    os.replace(draft, path)


def _add_stream(container: Any, picture: Picture, fps: float) -> Any:
    stream = container.add_stream(_CODEC, Fraction(fps).limit_denominator(1001), options=_OPTIONS)
    stream.pix_fmt = _PIXELS
    stream.height, stream.width = picture.shape[:2]
    # The encoder gives its threads, and the one that opens it, the highest real-time priority where the user
    # may have it.
    with kept_scheduling():
        stream.codec_context.open()
    return stream


def describe_video(height: int, width: int, fps: float) -> dict[str, Any]:
    """What meta/info.json says of a feature whose pictures `write_video` has encoded."""
    return {
        "video.height": height,
        "video.width": width,
        "video.codec": "av1",
        "video.pix_fmt": _PIXELS,
        "video.fps": int(fps),
        "video.channels": 3,
        "is_depth_map": False,
        "has_audio": False,
    }


class VideoReader:
    """One open file. Pictures that follow each other are decoded once; others are jumped to."""

    def __init__(self, path: Path, fps: float) -> None:
        """Raises DatasetError when the file is missing or no video."""
        self._path = path
        self._half_period = 0.5 / fps
        av = _load_av()
        self._errors: Any = av.FFmpegError
        try:
            self._container = av.open(str(path))
            self._stream = self._container.streams.video[0]
        except (OSError, av.FFmpegError, IndexError) as error:
            raise DatasetError(f"{path}: cannot be read as a video: {error}") from error
        self._frames: Iterator[Any] | None = None
        self._last: tuple[float, Any] | None = None

    def picture(self, time: float) -> Picture:
        """The picture shown at `time` seconds. Raises DatasetError when there is none."""
        if self._last is None or not -self._half_period < time - self._last[0] < _SKIP:
            self._jump(time)
        while self._last is None or self._last[0] < time - self._half_period:
            self._last = self._decode(time)
        if abs(self._last[0] - time) > self._half_period:
            raise DatasetError(
                f"{self._path}: no picture at {time:.3f} s, the next is at {self._last[0]:.3f} s"
            )
        return np.asarray(self._last[1].to_ndarray(format="rgb24"))

    def _jump(self, time: float) -> None:
        self._last = None
        offset = max(0, round((time - self._half_period) / self._stream.time_base))
        self._container.seek(offset, stream=self._stream, backward=True)
        self._frames = self._container.decode(self._stream)

    def _decode(self, time: float) -> tuple[float, Any]:
        assert self._frames is not None, "jumped to somewhere first"
        try:
            frame = next(self._frames)
        except (StopIteration, self._errors) as error:
            raise DatasetError(f"{self._path}: no picture at {time:.3f} s, the video ends before") from error
        return float(frame.pts * self._stream.time_base), frame

    def close(self) -> None:
        """Closes the file."""
        self._container.close()
