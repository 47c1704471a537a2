"""Positions of any base, against complex numbers."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.policies.blocks.llama import rotary_tables


@pytest.mark.parametrize("base", [1e4, 1e6])
def test_a_position_turns_each_pair_by_its_wavelength(base: float) -> None:
    cos, sin = rotary_tables(3, 5, 16, base)
    turned = np.exp(1j * np.outer(np.arange(3, 8), base ** (-np.arange(0, 16, 2) / 16)))
    np.testing.assert_allclose(cos + 1j * sin, turned, atol=1e-6)
