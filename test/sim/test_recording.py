"""Recordings: balanced, resumable, the same however often they were interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")
pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'vla_simd_ros[dataset]'")

from vla_simd_ros.datasets.errors import DatasetError
from vla_simd_ros.datasets.lerobot_v3 import open_dataset
from vla_simd_ros.sim import recording
from vla_simd_ros.sim.arm import JOINT_NAMES
from vla_simd_ros.sim.demonstrations import Disturbances, Step
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.recording import Recording, Settings
from vla_simd_ros.sim.tasks import CONTROL_RATE, INSTRUCTIONS

CALM = Disturbances(push=0.0, missed=0.0)
SETTINGS = Settings(episodes=8, seed=0, size=(8, 12), disturbances=CALM, renderer="opencv")
FAILING = 3
"""The attempts at this episode fail twice."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Demonstrations of three steps made of random numbers instead of simulated ones."""
    monkeypatch.setattr(recording, "demonstrate", _made_up)


def _made_up(
    scene: Any, instruction: str, generator: np.random.Generator, disturbances: Any
) -> list[Step] | None:
    assert disturbances is CALM
    height, width = SETTINGS.size
    steps = []
    for _ in range(3):
        pictures = {
            camera: generator.integers(0, 255, (height, width, 3)).astype(np.uint8)
            for camera in ("front", "wrist")
        }
        steps.append(Step(pictures, generator.normal(size=6), generator.normal(size=6)))
    return steps


def contents(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    dataset = open_dataset(folder)
    for index in range(len(dataset)):
        frame = dataset.frame(index)
        values = (frame["action"].tobytes(), frame["observation.images.wrist"].tobytes())
        yield frame["task"], frame["episode_index"], b"".join(values)


def test_each_instruction_in_turn(tmp_path: Path) -> None:
    made = Recording(tmp_path, SETTINGS)
    assert list(made.record()) == list(range(1, 9))
    assert (made.episodes, made.frames, made.failed) == (8, 24, 0)
    dataset = open_dataset(tmp_path)
    assert [each.tasks[0] for each in dataset.episodes] == [*INSTRUCTIONS, *INSTRUCTIONS[:2]]
    assert dataset.fps == CONTROL_RATE
    joints = [f"{name}.pos" for name in JOINT_NAMES]
    assert dataset.features["action"].names == dataset.features["observation.state"].names == joints
    assert dataset.frame(0)["observation.images.front"].shape == (8, 12, 3)


def test_interrupted_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(Recording(tmp_path / "whole", SETTINGS).record())
    steps = Recording(tmp_path / "cut", SETTINGS).record()
    for _ in range(4):
        next(steps)
    steps.close()  # as an interruption does
    resumed = Recording(tmp_path / "cut", SETTINGS, resume=True)
    assert resumed.episodes == 4
    assert list(resumed.record()) == [5, 6, 7, 8]
    assert list(contents(tmp_path / "cut")) == list(contents(tmp_path / "whole"))
    assert list(Recording(tmp_path / "cut", SETTINGS, resume=True).record()) == []


def test_flushed_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_FLUSH_EPISODES", 3)
    seen = [len(open_dataset(tmp_path).episodes) for _ in Recording(tmp_path, SETTINGS).record()]
    assert seen == [0, 0, 3, 3, 3, 6, 6, 6]
    assert len(open_dataset(tmp_path).episodes) == 8


def test_failures_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def twice_failing(scene: Any, instruction: str, *rest: Any) -> list[Step] | None:
        attempts.append(instruction)
        return (
            None if attempts.count(INSTRUCTIONS[FAILING]) in (1, 2) else _made_up(scene, instruction, *rest)
        )

    monkeypatch.setattr(recording, "demonstrate", twice_failing)
    made = Recording(tmp_path, SETTINGS)
    assert list(made.record()) == list(range(1, 9))
    assert made.failed == 2
    assert [each.tasks[0] for each in open_dataset(tmp_path).episodes][:6] == list(INSTRUCTIONS)


def test_what_always_fails_is_an_error_and_keeps_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(scene: Any, instruction: str, *rest: Any) -> list[Step] | None:
        return None if instruction == INSTRUCTIONS[FAILING] else _made_up(scene, instruction, *rest)

    monkeypatch.setattr(recording, "demonstrate", failing)
    with pytest.raises(SimulationError, match=rf"'{INSTRUCTIONS[FAILING]}' failed 20 times in a row"):
        list(Recording(tmp_path, SETTINGS).record())
    assert len(open_dataset(tmp_path).episodes) == FAILING


def test_a_recording_is_not_overwritten(tmp_path: Path) -> None:
    list(Recording(tmp_path, SETTINGS).record())
    with pytest.raises(DatasetError, match="holds a dataset already, expected a new folder"):
        Recording(tmp_path, SETTINGS)


def test_only_the_same_kind_of_recording_is_resumed(tmp_path: Path) -> None:
    list(Recording(tmp_path, SETTINGS).record())
    larger = Settings(episodes=9, seed=0, size=(16, 12), disturbances=CALM)
    with pytest.raises(DatasetError, match=r"holds image \[8, 12, 3\] as 'observation\.images\.front'"):
        Recording(tmp_path, larger, resume=True)
    video = Settings(episodes=9, seed=0, size=(8, 12), disturbances=CALM, video=True)
    with pytest.raises(DatasetError, match=r"expected video \[8, 12, 3\]"):
        Recording(tmp_path, video, resume=True)


def test_impossible_number() -> None:
    with pytest.raises(SimulationError, match="episodes: got 0, expected at least 1"):
        Settings(episodes=0, seed=0, size=(8, 12), disturbances=CALM)
