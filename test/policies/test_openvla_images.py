"""Frames as OpenVLA's processor brings them to its vision towers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.policies.blocks.image_geometry import bicubic
from vla_simd_ros.policies.openvla_images import (
    PREPROCESSOR_CONFIG,
    ImageSettings,
    Strategy,
    read_image_settings,
    tower_image,
)

Open = Callable[..., Checkpoint]
MEAN, STD = np.array([0.5, 0.25, 0.75], np.float32), np.array([0.5, 0.25, 0.125], np.float32)
BORDER = (127, 63, 191)


def seen(frame: Array, strategy: Strategy, side: int = 6) -> Array:
    """What a tower is given, undone as far as bytes."""
    b = Builder()
    x = b.input("x", frame.shape, DType.U8, Lifetime.QUERY)
    y = tower_image(b, x, ImageSettings(strategy, side, MEAN, STD, BORDER), name="y")
    b.output("y", y)
    return np.round((run_graph(b.graph(), {"x": frame})[y] * STD + MEAN) * 255)


def resized(frame: Array, height: int, width: int) -> Array:
    b = Builder()
    x = b.input("x", frame.shape, DType.U8, Lifetime.QUERY)
    y = bicubic(b, x, height, width, name="y")
    b.output("y", y)
    return run_graph(b.graph(), {"x": frame})[y] if y is not x else frame


def frame(height: int, width: int) -> Array:
    return np.random.default_rng(2).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_a_frame_is_stretched() -> None:
    given = frame(8, 11)
    np.testing.assert_array_equal(seen(given, Strategy.RESIZE_NAIVE), resized(given, 6, 6))


@pytest.mark.parametrize(("size", "scaled"), [((8, 11), (6, 8)), ((13, 8), (9, 6)), ((7, 7), (6, 6))])
def test_the_middle_of_a_fitted_frame_is_cut_out(size: tuple[int, int], scaled: tuple[int, int]) -> None:
    given = frame(*size)
    top, left = (round((extent - 6) / 2) for extent in scaled)
    expected = resized(given, *scaled)[top : top + 6, left : left + 6]
    np.testing.assert_array_equal(seen(given, Strategy.RESIZE_CROP), expected)


@pytest.mark.parametrize("size", [(8, 12), (12, 8), (9, 9)])
def test_a_frame_gets_a_border(size: tuple[int, int]) -> None:
    given = frame(*size)
    square = np.empty((max(size), max(size), 3), np.uint8)
    square[:] = BORDER
    top, left = ((max(size) - extent) // 2 for extent in size)
    square[top : top + size[0], left : left + size[1]] = given
    np.testing.assert_array_equal(seen(given, Strategy.LETTERBOX), resized(square, 6, 6))


def test_an_odd_border_leaves_a_line_to_cut() -> None:
    given = frame(8, 11)
    around = np.concatenate([np.full((1, 11, 3), BORDER), given, np.full((1, 11, 3), BORDER)]).astype(
        np.uint8
    )
    np.testing.assert_array_equal(seen(given, Strategy.LETTERBOX, 10), resized(around, 10, 11)[:, :10])


def with_preprocessor(checkpoint: Open, folder: Path, **fields: Any) -> Checkpoint:
    shutil.copytree(checkpoint("openvla").folder, folder)
    path = folder / PREPROCESSOR_CONFIG
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return load_checkpoint(folder)


def test_settings_are_those_of_each_tower(checkpoint: Open, tmp_path: Path) -> None:
    changed = with_preprocessor(checkpoint, tmp_path / "copy", image_resize_strategy="letterbox")
    first, second = read_image_settings(changed, 2)
    assert first.strategy is Strategy.LETTERBOX
    assert (first.side, second.side) == (16, 16)
    np.testing.assert_array_equal(first.mean, np.array([0.484375, 0.455078125, 0.40625], np.float32))
    np.testing.assert_array_equal(second.std, np.array([0.5, 0.5, 0.5], np.float32))
    assert first.border == second.border == (127, 127, 127), "the last tower's mean"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"image_resize_strategy": "pad"},
            "image_resize_strategy is 'pad', expected one of resize-naive, resize-crop",
        ),
        ({"means": [[0.5, 0.5, 0.5]]}, "means has 1 entries, expected 2, one a vision tower"),
        ({"interpolations": ["bicubic", "bilinear"]}, "expected 'bicubic'"),
        (
            {"input_sizes": [[3, 16, 16], [3, 16, 12]]},
            r"input_sizes has \[3, 16, 12\], expected a square of 3 colours",
        ),
        ({"input_sizes": [[3, 16, 16], 16]}, r"input_sizes has 16, expected \[3, height, width\]"),
        ({"means": [[0.5, 0.5, 0.5], [0.5, 0.5]]}, r"means has \[0.5, 0.5\], expected 3 numbers"),
        ({"stds": [[0.5, 0.5, 0.5], [0.5, 0.0, 0.5]]}, "expected numbers above 0"),
        ({"stds": [[0.5, 0.5, 0.5], [0.5, "x", 0.5]]}, "'stds' is a string"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_refused(
    checkpoint: Open, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    changed = with_preprocessor(checkpoint, tmp_path / "copy", **fields)
    with pytest.raises(CheckpointError, match=f"{PREPROCESSOR_CONFIG}: .*{message}"):
        read_image_settings(changed, 2)
