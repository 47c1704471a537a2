from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.policies.blocks.siglip import position_indices


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("count", "grid"), [(32, 32), (16, 32), (32, 16), (1, 32), (4, 4)])
def test_powers_of_two_are_exact_in_any_precision(count: int, grid: int, half: bool) -> None:
    expected = np.arange(count) * grid // count
    np.testing.assert_array_equal(position_indices(count, grid, half), expected)


@pytest.mark.parametrize(("count", "grid"), [(24, 24), (27, 27), (14, 14), (12, 32), (24, 32)])
def test_float32_finds_the_share_that_a_patch_begins_in(count: int, grid: int) -> None:
    np.testing.assert_array_equal(position_indices(count, grid, False), np.arange(count) * grid // count)


# Measured with transformers 5.5 and PyTorch 2.13: the index of every patch in bfloat16.
HALF = {
    (7, 7): [0, 0, 1, 2, 3, 5, 5],
    (17, 32): [0, 1, 3, 5, 7, 9, 11, 13, 15, 17, 18, 20, 22, 24, 26, 28, 30],
}


@pytest.mark.parametrize(("count", "grid"), HALF)
def test_bfloat16_moves_patches_across_borders_as_in_the_reference(count: int, grid: int) -> None:
    half = position_indices(count, grid, True)
    assert half.tolist() == HALF[count, grid]
    moved = half - position_indices(count, grid, False)
    assert np.abs(moved).max() == 1
