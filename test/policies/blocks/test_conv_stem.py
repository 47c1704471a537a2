from __future__ import annotations

import numpy as np

from vla_simd_ros.policies.blocks.conv_stem import standardize


def test_filters_have_mean_zero_and_deviation_one() -> None:
    filters = np.random.default_rng(0).normal(3, 5, (4, 3, 3, 6)).astype(np.float32)
    made = standardize(filters)
    assert made.dtype == np.float32 and made.shape == filters.shape
    np.testing.assert_allclose(made.mean(axis=(1, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(made.std(axis=(1, 2, 3)), 1, atol=1e-5)


def test_what_is_added_is_added_to_the_deviation() -> None:
    """Not to the variance, and not to a deviation over n - 1: that would show in filters this small."""
    filters = np.array([1e-5, -1e-5], np.float32).reshape(1, 1, 2, 1)
    np.testing.assert_allclose(standardize(filters).reshape(-1), [0.5, -0.5], rtol=1e-5)
