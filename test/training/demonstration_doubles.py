"""A dataset in memory, of an arm that goes where the picture is bright, faster where it is told to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

HEIGHT, WIDTH = 32, 48
TASKS = ("go there slowly", "go there fast")


@dataclass(frozen=True)
class Shape:
    """Of a feature."""

    shape: tuple[int, ...]


class Memory:
    """Frames of ``episodes`` demonstrations of ``length`` frames each."""

    def __init__(self, episodes: int = 4, length: int = 6, seed: int = 0) -> None:
        self.features: dict[str, Any] = {
            "observation.state": Shape((2,)),
            "action": Shape((2,)),
            "observation.images.front": Shape((HEIGHT, WIDTH, 3)),
            "observation.images.wrist": Shape((HEIGHT, WIDTH, 3)),
        }
        self.frames: list[dict[str, Any]] = []
        generator = np.random.default_rng(seed)
        for episode in range(episodes):
            column, task = int(generator.integers(4, WIDTH - 4)), episode % len(TASKS)
            for step in range(length):
                self.frames.append(_frame(generator, episode, step, column, task))

    def __len__(self) -> int:
        return len(self.frames)

    def frame(self, index: int) -> Mapping[str, Any]:
        return self.frames[index]


def _frame(generator: np.random.Generator, episode: int, step: int, column: int, task: int) -> dict[str, Any]:
    image = generator.integers(0, 60, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    image[:, column - 2 : column + 2] = 255
    place = np.float32(column / WIDTH)
    return {
        "observation.state": np.array([0.1 * step, place], np.float32),
        "action": np.array([place * (1 + task), 0.1 * (step + 1)], np.float32),
        "observation.images.front": image,
        "observation.images.wrist": image[::-1].copy(),
        "task": TASKS[task],
        "episode_index": episode,
    }
