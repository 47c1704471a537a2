"""Single pictures out of a video."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av", reason="needs PyAV: pip install 'vla_simd_ros[dataset]'")

from vla_simd_ros.datasets.errors import DatasetError
from vla_simd_ros.datasets.video import VideoReader, write_video

FPS = 30.0
COUNT = 75


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grey pictures, each brighter than the one before."""
    path = tmp_path_factory.mktemp("video") / "grey.mp4"
    write_video(path, (np.full((16, 16, 3), 20 + 3 * number, np.uint8) for number in range(COUNT)), FPS)
    return path


def number_of(picture: np.ndarray) -> float:
    return (float(picture.mean()) - 20.0) / 3.0


@pytest.mark.parametrize("step", [1, 7, -1])
def test_pictures_by_their_times(video: Path, step: int) -> None:
    reader = VideoReader(video, FPS)
    for number in list(range(COUNT))[::step]:
        for shift in (0.0, 0.4 / FPS, -0.4 / FPS):
            assert number_of(reader.picture(number / FPS + shift)) == pytest.approx(number, abs=0.45)
    reader.close()


@pytest.mark.parametrize("time", [COUNT / FPS + 0.1, 60.0])
def test_times_after_the_end(video: Path, time: float) -> None:
    reader = VideoReader(video, FPS)
    with pytest.raises(DatasetError, match=rf"grey\.mp4: no picture at {time:.3f} s, the video ends before"):
        reader.picture(time)
    assert number_of(reader.picture(0.0)) == pytest.approx(0, abs=0.45)


def test_no_video(tmp_path: Path) -> None:
    path = tmp_path / "x.mp4"
    with pytest.raises(DatasetError, match=r"x\.mp4: cannot be read as a video"):
        VideoReader(path, FPS)
    path.write_text("no video")
    with pytest.raises(DatasetError, match=r"x\.mp4: cannot be read as a video"):
        VideoReader(path, FPS)


def test_pictures_that_cannot_be_encoded(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"x\.mp4: cannot be encoded"):
        write_video(tmp_path / "x.mp4", [np.zeros((16, 16, 3), np.float32)], FPS)  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at threads as Linux shows them")
def test_encoding_raises_no_thread_above_the_others(tmp_path: Path) -> None:
    def policies() -> dict[str, int]:
        """By thread; other libraries' have their own reasons."""
        found = {}
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has just ended
                found[thread.name] = os.sched_getscheduler(int(thread.name))
        return found

    def pictures() -> Iterator[np.ndarray]:
        for _ in range(2):
            seen.append(policies())
            yield np.zeros((16, 16, 3), np.uint8)
        seen.append(policies())

    seen: list[dict[str, int]] = []
    mine, before = os.sched_getscheduler(0), policies()
    write_video(tmp_path / "black.mp4", pictures(), FPS)
    seen.append(policies())
    assert len(seen) == 4
    for found in seen:
        assert found == {name: before.get(name, mine) for name in found}
