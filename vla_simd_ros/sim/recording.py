"""Records demonstrations of all instructions as a dataset; an interrupted recording goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vla_simd_ros.datasets.errors import DatasetError
from vla_simd_ros.datasets.layout import Feature
from vla_simd_ros.datasets.writer import DatasetWriter, Frame
from vla_simd_ros.sim.arm import JOINT_NAMES
from vla_simd_ros.sim.demonstrations import Disturbances, Step, demonstrate
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.scene import CAMERAS
from vla_simd_ros.sim.tasks import CONTROL_RATE, INSTRUCTIONS, TaskScene

ROBOT_TYPE = "so101_simulated"
_ATTEMPTS = 20
"""A demonstration that fails so many times in a row will not succeed."""
_FLUSH_EPISODES = 12
_FLUSH_S = 20.0
"""Episodes, and seconds, that an interruption loses at most."""


@dataclass(frozen=True)
class Settings:
    """What to record: `episodes` in all; `size` is height and width in pixels."""

    episodes: int
    seed: int
    size: tuple[int, int]
    disturbances: Disturbances
    video: bool = False
    renderer: str = "auto"

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise SimulationError(f"episodes: got {self.episodes}, expected at least 1")


class Recording:
    """A dataset that is being filled. Episode k is the same whenever and however often it was interrupted."""

    def __init__(self, folder: Path, settings: Settings, *, resume: bool = False) -> None:
        """Raises DatasetError when the folder holds a dataset and `resume` is not set, or another one."""
        self._settings = settings
        expected = features(settings)
        if resume and (folder / "meta").exists():
            self._writer = DatasetWriter.resume(folder)
            _check_same(folder, self._writer, expected)
        else:
            self._writer = DatasetWriter.create(
                folder, fps=CONTROL_RATE, features=expected, robot_type=ROBOT_TYPE
            )
        self.failed = 0

    @property
    def episodes(self) -> int:
        """Episodes recorded, on disk or about to be."""
        return self._writer.episodes + self._writer.pending

    @property
    def frames(self) -> int:
        """Their frames."""
        return self._writer.frames

    def record(self) -> Iterator[int]:
        """Records what is missing; gives the number of episodes after each.

        Raises SimulationError when an instruction cannot be demonstrated.
        """
        height, width = self._settings.size
        scene = TaskScene(width=width, height=height, renderer=self._settings.renderer)
        flushed = time.monotonic()
        try:
            while self.episodes < self._settings.episodes:
                number = self.episodes
                instruction = INSTRUCTIONS[number % len(INSTRUCTIONS)]
                self._writer.add_episode([_frame(step) for step in self._solve(scene, number)], instruction)
                if self._writer.pending >= _FLUSH_EPISODES or time.monotonic() - flushed > _FLUSH_S:
                    self._writer.flush()
                    flushed = time.monotonic()
                yield self.episodes
        finally:
            self._writer.flush()
            scene.robot.close()

    def _solve(self, scene: TaskScene, number: int) -> list[Step]:
        instruction = INSTRUCTIONS[number % len(INSTRUCTIONS)]
        for attempt in range(_ATTEMPTS):
            generator = np.random.default_rng((self._settings.seed, number, attempt))
            steps = demonstrate(scene, instruction, generator, self._settings.disturbances)
            if steps is not None:
                return steps
            self.failed += 1
        raise SimulationError(f"'{instruction}' failed {_ATTEMPTS} times in a row, expected a demonstration")


def features(settings: Settings) -> dict[str, Feature]:
    """What a frame holds."""
    joints = [f"{name}.pos" for name in JOINT_NAMES]
    vector = Feature("float32", (len(JOINT_NAMES),), joints)
    kind = "video" if settings.video else "image"
    picture = Feature(kind, (*settings.size, 3), ["height", "width", "channels"])
    pictures = {f"observation.images.{camera}": picture for camera in CAMERAS}
    return {"observation.state": vector, **pictures, "action": vector}


def _frame(step: Step) -> Frame:
    pictures = {f"observation.images.{camera}": picture for camera, picture in step.pictures.items()}
    return {"observation.state": step.state, **pictures, "action": step.action}


def _check_same(folder: Path, writer: DatasetWriter, expected: dict[str, Feature]) -> None:
    if writer.fps != CONTROL_RATE:
        raise DatasetError(f"{folder}: holds {writer.fps} frames per second, expected {CONTROL_RATE}")
    for key, feature in expected.items():
        held = writer.features.get(key)
        if held is None or (held.dtype, held.shape) != (feature.dtype, feature.shape):
            got = "nothing" if held is None else f"{held.dtype} {list(held.shape)}"
            wanted = f"{feature.dtype} {list(feature.shape)}"
            raise DatasetError(f"{folder}: holds {got} as '{key}', expected {wanted} (as when it was begun)")
