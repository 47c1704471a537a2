"""Datasets against LeRobot's own code: it opens what we write, and we open what it writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("datasets", reason="needs LeRobot's dataset packages (scripts/make_reference_env.sh)")

from lerobot.datasets.lerobot_dataset import LeRobotDataset as Reference

from vla_simd_ros.datasets.lerobot_v3 import open_dataset
from vla_simd_ros.datasets.writer import DatasetWriter

sys.path.insert(0, str(Path(__file__).parents[1] / "datasets"))

from small_datasets import EPISODES, FPS, LENGTHS, features, make_episode, task_of, write

FRONT = "observation.images.front"
KINDS = ("image", "video")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is looked for on the hub, and the tables' cache is this test's own."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def opened(folder: Path) -> Any:
    return Reference("local/test", root=folder, video_backend="pyav")


def picture(item: dict[str, Any]) -> np.ndarray:
    """LeRobot's [3, height, width] in 0..1 as our RGB bytes."""
    return np.asarray(np.rint(item[FRONT].numpy() * 255.0).astype(np.uint8).transpose(1, 2, 0))


def assert_same(folder: Path, reference: Any) -> None:
    """Every frame and the description, as LeRobot and as we read them."""
    ours = open_dataset(folder)
    assert len(ours) == len(reference)
    assert ours.fps == reference.fps
    assert ours.tasks == tuple(reference.meta.tasks.index)
    for key, feature in ours.features.items():
        assert feature.dtype == reference.meta.features[key]["dtype"]
        assert feature.shape == tuple(reference.meta.features[key]["shape"])
    for index in range(len(ours)):
        frame, item = ours.frame(index), reference[index]
        for key in ("observation.state", "action"):
            np.testing.assert_array_equal(frame[key], item[key].numpy())
        np.testing.assert_array_equal(frame[FRONT], picture(item))
        assert frame["task"] == item["task"]
        assert frame["timestamp"] == pytest.approx(float(item["timestamp"]))
        for key in ("episode_index", "frame_index", "index", "task_index"):
            assert frame[key] == int(item[key])


@pytest.mark.parametrize("kind", KINDS)
def test_lerobot_reads_what_we_write(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path / "ours", kind)
    reference = opened(folder)
    assert reference.num_episodes == len(EPISODES)
    assert reference.num_frames == sum(LENGTHS)
    assert_same(folder, reference)
    if kind == "image":
        written = [frame[FRONT] for episode in EPISODES for frame in episode]
        for index, each in enumerate(written):
            np.testing.assert_array_equal(picture(reference[index]), each)


def test_lerobot_finds_chunks_of_actions_in_what_we_write(tmp_path: Path) -> None:
    folder = write(tmp_path / "ours", "image")
    stamps = {"action": [0.0, 1 / FPS, 2 / FPS]}
    reference = Reference("local/test", root=folder, delta_timestamps=stamps)
    item = reference[5]  # the last but one of the first episode
    last = EPISODES[0][-1]["action"]
    np.testing.assert_array_equal(item["action"].numpy(), [EPISODES[0][5]["action"], last, last])
    assert item["action_is_pad"].tolist() == [False, False, True]


def _written_by_lerobot(folder: Path, kind: str) -> Any:
    described = {key: feature.as_json() for key, feature in features(kind).items()}
    for each in described.values():
        each["shape"] = tuple(each["shape"])
    made = Reference.create("local/test", FPS, described, root=folder, use_videos=kind == "video")
    for number, frames in enumerate(EPISODES):
        for frame in frames:
            made.add_frame({**frame, "task": task_of(number)})
        made.save_episode(parallel_encoding=False)
    made.finalize()
    return opened(folder)


@pytest.fixture(params=KINDS)
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    folder = tmp_path / "theirs"
    yield folder, _written_by_lerobot(folder, request.param)


def test_we_read_what_lerobot_writes(theirs: tuple[Path, Any]) -> None:
    assert_same(*theirs)


def test_statistics_agree(tmp_path: Path) -> None:
    reference = _written_by_lerobot(tmp_path / "theirs", "image").meta.stats
    ours = open_dataset(write(tmp_path / "ours", "image")).stats
    assert set(ours) == set(reference)
    for key, stats in reference.items():
        assert set(ours[key]) == set(stats)
        for name in ("min", "max", "mean", "std", "count"):
            np.testing.assert_allclose(ours[key][name], stats[name], atol=1e-5, err_msg=f"{key} {name}")
            assert ours[key][name].shape == stats[name].shape


def test_we_go_on_with_what_lerobot_began(theirs: tuple[Path, Any]) -> None:
    folder, _ = theirs
    writer = DatasetWriter.resume(folder)
    writer.add_episode(make_episode(7, 3), "wave")
    writer.flush()
    longer = opened(folder)
    assert longer.num_episodes == len(EPISODES) + 1
    assert longer[len(longer) - 1]["task"] == "wave"
    assert_same(folder, longer)
