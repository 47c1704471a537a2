"""How OpenVLA's processor brings a frame to a vision tower: settings from preprocessor_config.json, and the
graph."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.image_geometry import bicubic, centre_crop

PREPROCESSOR_CONFIG = "preprocessor_config.json"
_COLOURS = 3


class Strategy(enum.Enum):
    """How a frame becomes a square."""

    RESIZE_NAIVE = "resize-naive"
    """Stretched."""
    RESIZE_CROP = "resize-crop"
    """Its shorter side fitted, the middle of the longer one cut out."""
    LETTERBOX = "letterbox"
    """With a border of the mean colour on both of its longer sides."""


@dataclass(frozen=True, eq=False)
class ImageSettings:
    """What becomes of a frame: a square of ``side`` pixels, less the ``mean`` over ``std``. ``border`` is the
    colour around a frame that is not square."""

    strategy: Strategy
    side: int
    mean: Array
    std: Array
    border: tuple[int, ...]


def read_image_settings(checkpoint: Checkpoint, towers: int) -> list[ImageSettings]:
    """The settings of each of so many ``towers``. Raises CheckpointError."""
    where = checkpoint.folder / PREPROCESSOR_CONFIG
    config = json_file.read_json_object(where)
    name = json_file.field(config, "image_resize_strategy", str, where)
    if name not in [strategy.value for strategy in Strategy]:
        known = ", ".join(strategy.value for strategy in Strategy)
        raise CheckpointError(f"{where}: image_resize_strategy is '{name}', expected one of {known}")
    sizes, means, stds, methods = (
        json_file.field(config, field, list, where)
        for field in ("input_sizes", "means", "stds", "interpolations")
    )
    for field, values in (
        ("input_sizes", sizes),
        ("means", means),
        ("stds", stds),
        ("interpolations", methods),
    ):
        if len(values) != towers:
            raise CheckpointError(
                f"{where}: {field} has {len(values)} entries, expected {towers}, one a vision tower"
            )
    if any(method != "bicubic" for method in methods):
        raise CheckpointError(f"{where}: interpolations are {methods}, expected 'bicubic'")
    # Padding comes once, before the ways of the towers part; the colour is the last tower's.
    border = tuple(int(value * 255) for value in _colour(means[-1], "means", where))
    return [
        ImageSettings(
            Strategy(name),
            _side(size, where),
            np.array(_colour(mean, "means", where), np.float32),
            np.array(_colour(std, "stds", where, above=0), np.float32),
            border,
        )
        for size, mean, std in zip(sizes, means, stds, strict=True)
    ]


def tower_image(b: Builder, frame: Tensor, settings: ImageSettings, *, name: str) -> Tensor:
    """A frame, uint8 [H, W, 3], as a tower reads it: float [side, side, 3]."""
    side = settings.side
    if settings.strategy is Strategy.RESIZE_NAIVE:
        square = bicubic(b, frame, side, side, name=name)
    else:
        if settings.strategy is Strategy.LETTERBOX:
            frame = _framed(b, frame, settings.border, name)
        height, width, _ = frame.shape
        # The shorter side has the size that is asked for, the longer one keeps proportions.
        shorter = min(height, width)
        scaled = bicubic(b, frame, side * height // shorter, side * width // shorter, name=name)
        square = centre_crop(b, scaled, side, side, name=f"{name}.cut")
    offset, divisor = b.constant(f"{name}.mean", settings.mean), b.constant(f"{name}.std", settings.std)
    return b.normalize_image(square, offset, divisor, name=f"{name}.normalized")


def _framed(b: Builder, frame: Tensor, border: tuple[int, ...], name: str) -> Tensor:
    """The frame between two borders, so that it is square, or one pixel short of it."""
    for axis in range(2):
        missing = (max(frame.shape[:2]) - frame.shape[axis]) // 2
        if missing:
            shape = [*frame.shape]
            shape[axis] = missing
            edge = b.constant(f"{name}.edge", np.full(shape, border, np.uint8))
            frame = b.concat([edge, frame, edge], axis=axis, name=f"{name}.framed")
    return frame


def _side(size: Any, where: object) -> int:
    if not isinstance(size, list) or len(size) != 3 or not all(type(n) is int and n > 0 for n in size):
        raise CheckpointError(f"{where}: input_sizes has {size}, expected [3, height, width]")
    channels, height, width = size
    if channels != _COLOURS or height != width:
        raise CheckpointError(f"{where}: input_sizes has {size}, expected a square of {_COLOURS} colours")
    return int(height)


def _colour(values: Any, field: str, where: object, above: float | None = None) -> list[float]:
    if not isinstance(values, list) or len(values) != _COLOURS:
        raise CheckpointError(f"{where}: {field} has {values}, expected {_COLOURS} numbers")
    colour = [float(json_file.field({field: value}, field, float, where)) for value in values]
    if above is not None and min(colour) <= above:
        raise CheckpointError(f"{where}: {field} has {values}, expected numbers above {above}")
    return colour
