from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.policies.blocks.positions import sine_positions_2d


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
