from __future__ import annotations

import numpy as np

from vla_simd_ros.policies.blocks.step_embedding import step_embeddings


def test_sines_then_cosines_of_falling_frequencies() -> None:
    table = step_embeddings(50, 16)
    frequency = 10000.0 ** (-np.arange(8) / 7)
    angle = np.arange(50)[:, None] * frequency
    assert table.dtype == np.float32
    # Angles of up to 49, rounded to float32.
    np.testing.assert_allclose(table, np.concatenate([np.sin(angle), np.cos(angle)], axis=1), atol=6e-6)


def test_the_first_row_is_zeros_and_ones() -> None:
    np.testing.assert_array_equal(step_embeddings(3, 8)[0], [0, 0, 0, 0, 1, 1, 1, 1])


def test_the_same_table_is_the_same_object() -> None:
    assert step_embeddings(10, 8) is step_embeddings(10, 8)
