"""Episodes as animations: the world run again under the recorded commands, and the instruction with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from vla_simd_ros.evaluation.rollout import Result
from vla_simd_ros.evaluation.world import EvaluationError, Picture, World
from vla_simd_ros.pictures import resize

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_BAR = 0.11
"""Height of the bar under a picture that the instruction stands in, as a share of the picture's."""
_GOOD, _BAD, _RUNNING = (40, 130, 60), (165, 45, 40), (45, 50, 60)
_PAUSE_S = 1.2
"""The last picture stays for so long."""


def film(world: World, result: Result, frames_per_s: float) -> Iterator[Picture]:
    """The episode's pictures, about so many of each simulated second; the last one shows how it ended."""
    world.begin(result.episode)
    every = max(1, round(1e9 / (world.period_ns * frames_per_s)))
    for step, command in enumerate(result.commands):
        if step % every == 0:
            yield captioned(world.picture(), result.episode.instruction, _RUNNING)
        world.act(command)
    yield captioned(world.picture(), result.episode.instruction, _GOOD if result.success else _BAD)


def captioned(picture: Picture, text: str, colour: tuple[int, int, int]) -> Picture:
    """The picture over a bar with a text in it, as large as fits."""
    height, width = picture.shape[:2]
    bar = np.full((max(12, round(height * _BAR)), width, 3), colour, np.uint8)
    (wide, high), base = cv2.getTextSize(text, _FONT, 1.0, 1)
    scale = min(0.92 * width / wide, 0.8 * len(bar) / (high + base))
    origin = (round((width - wide * scale) / 2), round((len(bar) + (high - base) * scale) / 2))
    cv2.putText(bar, text, origin, _FONT, scale, (255, 255, 255), 1, cv2.LINE_AA)
    return np.vstack([picture, bar])


def beside(films: Sequence[Sequence[Picture]], columns: int) -> list[Picture]:
    """Films of one size at once, so many to a row; those that end early stay on their last picture."""
    length = max(len(each) for each in films)
    blank = np.zeros_like(films[0][0])
    missing = -len(films) % columns
    pictures = []
    for number in range(length):
        tiles = [each[min(number, len(each) - 1)] for each in films] + [blank] * missing
        rows = [np.hstack(tiles[start : start + columns]) for start in range(0, len(tiles), columns)]
        pictures.append(np.vstack(rows))
    return pictures


def write_gif(pictures: Sequence[Picture], path: Path, frames_per_s: float, colours: int = 96) -> int:
    """Write an animation that repeats for ever; its size in bytes."""
    images = _palette_images(pictures, colours)
    durations = [round(1000 / frames_per_s)] * (len(images) - 1) + [round(1000 * _PAUSE_S)]
    images[0].save(path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)
    return path.stat().st_size


def write_small_gif(pictures: Sequence[Picture], path: Path, frames_per_s: float, most_bytes: int) -> int:
    """Write an animation of at most so many bytes, with less of everything until it is; its size.

    Raises:
        EvaluationError: not even the smallest one is small enough.
    """
    for scale, colours, step in ((1.0, 96, 1), (1.0, 64, 2), (0.8, 64, 2), (0.65, 48, 2), (0.5, 32, 3)):
        height, width = (round(side * scale) for side in pictures[0].shape[:2])
        kept = [*pictures[:-1:step], pictures[-1]]
        size = write_gif([resize(each, height, width) for each in kept], path, frames_per_s / step, colours)
        if size <= most_bytes:
            return size
    raise EvaluationError(f"{path}: {size} bytes at the smallest, expected at most {most_bytes}")


def _palette_images(pictures: Sequence[Picture], colours: int) -> list[Any]:
    """Pillow's images with one palette, that of pictures from all over the film, for all."""
    from PIL import Image

    sample = np.vstack(pictures[:: max(1, len(pictures) // 8)])
    palette = Image.fromarray(sample).quantize(colours, dither=Image.Dither.NONE)
    return [Image.fromarray(each).quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
