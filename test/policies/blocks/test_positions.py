from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.policies.blocks.positions import (
    resized_positions,
    rotary_positions_2d,
    sine_positions_2d,
)


@pytest.mark.parametrize(("height", "width", "dim"), [(1, 1, 4), (3, 5, 8), (15, 20, 512)])
def test_they_follow_the_definition(height: int, width: int, dim: int) -> None:
    table = sine_positions_2d(height, width, dim)
    assert table.shape == (height * width, dim) and table.dtype == np.float32
    half = dim // 2
    for row in (0, height // 2, height - 1):
        for column in (0, width // 2, width - 1):
            got = table[row * width + column]
            for start, index, count in ((0, row, height), (half, column, width)):
                angle = 2 * math.pi * (index + 1) / (count + 1e-6)
                for i in range(half):
                    wave = math.sin if i % 2 == 0 else math.cos
                    expected = wave(angle / 10000 ** (2 * (i // 2) / half))
                    assert got[start + i] == pytest.approx(expected, abs=2e-6)


def test_steps_are_rounded_to_float32() -> None:
    """The angle of the last row is the float32 nearest to 2 pi in the reference's arithmetic."""
    last = np.float32(15) / (np.float32(15) + np.float32(1e-6)) * np.float32(2 * math.pi)
    assert sine_positions_2d(15, 20, 512)[-1, 0] == np.float32(math.sin(np.float64(last)))


def test_the_table_is_shared_and_cannot_be_changed() -> None:
    table = sine_positions_2d(2, 3, 8)
    assert sine_positions_2d(2, 3, 8) is table
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 1


@pytest.mark.parametrize(
    ("rows", "columns", "width", "base"), [(1, 1, 4, 100.0), (3, 5, 16, 100.0), (14, 14, 64, 7.0)]
)
def test_rotations_follow_the_definition(rows: int, columns: int, width: int, base: float) -> None:
    cos, sin = rotary_positions_2d(rows, columns, width, base)
    assert cos.shape == sin.shape == (rows * columns, width // 2) and cos.dtype == np.float32
    quarter = width // 4
    for row in range(rows):
        for column in range(columns):
            places = [2 * (index + 0.5) / count - 1 for index, count in ((row, rows), (column, columns))]
            for i in range(width // 2):
                angle = 2 * math.pi * places[i // quarter] / base ** (4 * (i % quarter) / width)
                got = cos[row * columns + column, i], sin[row * columns + column, i]
                assert got == pytest.approx((math.cos(angle), math.sin(angle)), abs=1e-6)


def test_a_patch_in_the_middle_is_not_turned() -> None:
    cos, sin = rotary_positions_2d(3, 3, 8, 100.0)
    assert (cos[4] == 1).all() and (sin[4] == 0).all()


@pytest.mark.needs_torch
@pytest.mark.parametrize(("side", "rows", "columns"), [(4, 4, 4), (5, 3, 7), (37, 16, 16), (3, 14, 14)])
def test_resized_positions_are_those_of_pytorch(side: int, rows: int, columns: int) -> None:
    torch = pytest.importorskip("torch")
    table = np.random.default_rng(side).normal(size=(side * side, 6)).astype(np.float32)
    image = torch.from_numpy(table.reshape(1, side, side, 6)).permute(0, 3, 1, 2).double()
    expected = torch.nn.functional.interpolate(image, (rows, columns), mode="bicubic", align_corners=False)
    resized = resized_positions(table, rows, columns)
    assert resized.dtype == np.float32
    np.testing.assert_allclose(resized, expected[0].permute(1, 2, 0).reshape(-1, 6), atol=1e-6)
