"""Resizing, against the formula in plain NumPy and against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.pictures import resize

# Those whose weights fit the eight bits that OpenCV gives them.
EXACT = [((48, 64), (24, 32)), ((24, 32), (48, 64)), ((60, 40), (60, 80))]
OTHERS = [((48, 64), (25, 40)), ((7, 5), (3, 11))]
CAMERAS = [((480, 640), (256, 256)), ((720, 1280), (480, 640)), ((1080, 1920), (480, 640))]


def picture(size: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (*size, 3), dtype=np.uint8)


def assert_near(difference: np.ndarray, exact: bool) -> None:
    assert difference.max() <= (0 if exact else 2)
    assert (difference > 0).mean() < 0.2


def along(values: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Linear interpolation between pixel centres along an axis, rounded to whole numbers."""
    old = values.shape[axis]
    at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, old - 1)
    part = (at - low).reshape([-1 if axis == i else 1 for i in range(3)])
    mixed = np.take(values, low, axis) * (1 - part) + np.take(values, high, axis) * part
    return np.floor(mixed + 0.5)


@pytest.mark.parametrize(("old", "new"), EXACT + OTHERS)
def test_rows_first_then_columns_each_rounded(old: tuple[int, int], new: tuple[int, int]) -> None:
    before = picture(old)
    expected = along(along(before.astype(float), 1, new[1]), 0, new[0])
    after = resize(before, *new)
    assert after.shape == (*new, 3) and after.dtype == np.uint8
    assert_near(np.abs(after - expected), exact=(old, new) in EXACT)


def test_a_picture_of_the_right_size_is_not_touched() -> None:
    before = picture((8, 8))
    assert resize(before, 8, 8) is before


@pytest.mark.needs_torch
@pytest.mark.parametrize(("old", "new"), [*EXACT, *OTHERS, *CAMERAS, ((480, 640), (224, 224))])
def test_pytorch_gives_the_same(old: tuple[int, int], new: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    before = picture(old)
    batch = torch.tensor(before).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(batch, size=new, mode="bilinear", align_corners=False)
    difference = np.abs(resize(before, *new).astype(int) - expected[0].permute(1, 2, 0).numpy())
    assert_near(difference, exact=(old, new) in EXACT + CAMERAS)
