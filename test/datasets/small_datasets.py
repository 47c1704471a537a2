"""Small datasets whose contents are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.datasets.layout import Feature
from vla_simd_ros.datasets.writer import DatasetWriter

FPS = 10
HEIGHT, WIDTH = 24, 32
VECTOR = Feature("float32", (3,), ["a.pos", "b.pos", "c.pos"])
TASKS = ("put it down", "pick it up")

Frames = list[dict[str, Any]]


def features(kind: str) -> dict[str, Feature]:
    picture = Feature(kind, (HEIGHT, WIDTH, 3), ["height", "width", "channels"])
    return {"observation.state": VECTOR, "observation.images.front": picture, "action": VECTOR}


def make_episode(number: int, length: int) -> Frames:
    """Frames that differ from each other: a bright square that moves over a gradient, and random vectors."""
    generator = np.random.default_rng(number)
    frames: Frames = []
    for row in range(length):
        picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        picture[..., 0] = np.linspace(0, 120, WIDTH)
        picture[4:12, (row * 3) % (WIDTH - 8) : (row * 3) % (WIDTH - 8) + 8, 1] = 200
        picture[14:22, (number * 8) % (WIDTH - 8) : (number * 8) % (WIDTH - 8) + 8, 2] = 250
        frames.append(
            {
                "observation.state": generator.normal(size=3).astype(np.float32),
                "observation.images.front": picture,
                "action": generator.normal(size=3).astype(np.float32),
            }
        )
    return frames


LENGTHS = (7, 4, 9, 5)
EPISODES = [make_episode(number, length) for number, length in enumerate(LENGTHS)]


def task_of(number: int) -> str:
    return TASKS[number % 2]


def write(folder: Path, kind: str, flush_after: int = 2) -> Path:
    """All of `EPISODES`, so many to a file."""
    writer = DatasetWriter.create(folder, fps=FPS, features=features(kind), robot_type="test")
    for number, frames in enumerate(EPISODES):
        writer.add_episode(frames, task_of(number))
        if (number + 1) % flush_after == 0:
            writer.flush()
    writer.flush()
    return folder
