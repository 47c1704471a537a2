from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.graph.blocks import BLOCK_BYTES, Blocks, joined


@pytest.mark.parametrize("form", BLOCK_BYTES)
def test_rows_taken_apart_and_put_together(form: str) -> None:
    data = np.random.default_rng(0).integers(0, 256, (6, 3 * BLOCK_BYTES[form]), np.uint8)
    blocks = Blocks(form, data)

    assert blocks.shape == (6, 96)
    parts = [blocks.rows(0, 2), blocks.rows(2, 6)]
    assert [part.shape for part in parts] == [(2, 96), (4, 96)]
    whole = joined(parts)
    assert whole.form == form
    np.testing.assert_array_equal(whole.data, data)
