"""Statistics against plain NumPy over all values."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.datasets import statistics


def test_vectors() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3))
    stats = statistics.of_vectors(values)
    np.testing.assert_allclose(stats["mean"], values.mean(axis=0))
    np.testing.assert_allclose(stats["std"], values.std(axis=0))
    np.testing.assert_allclose(stats["q90"], np.quantile(values, 0.9, axis=0))
    np.testing.assert_array_equal(stats["max"], values.max(axis=0))
    assert stats["count"].tolist() == [50]


def test_numbers_are_vectors_of_one() -> None:
    assert {name: value.shape for name, value in statistics.of_vectors(np.arange(5)).items()} == {
        name: (1,) for name in ("min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99")
    }


def test_pictures() -> None:
    pictures = np.random.default_rng(1).integers(20, 200, (6, 10, 12, 3)).astype(np.uint8)
    pictures[..., 2] //= 4
    stats = statistics.of_pictures(list(pictures))
    pixels = pictures.reshape(-1, 3) / 255.0
    assert stats["mean"].shape == (3, 1, 1)
    np.testing.assert_allclose(stats["mean"].ravel(), pixels.mean(axis=0))
    np.testing.assert_allclose(stats["std"].ravel(), pixels.std(axis=0))
    np.testing.assert_array_equal(stats["min"].ravel(), pixels.min(axis=0))
    np.testing.assert_array_equal(stats["max"].ravel(), pixels.max(axis=0))
    for name, share in (("q01", 0.01), ("q50", 0.5), ("q99", 0.99)):
        expected = np.quantile(pixels, share, axis=0, method="inverted_cdf")
        np.testing.assert_allclose(stats[name].ravel(), expected, atol=1e-12)
    assert stats["count"].tolist() == [6]


def test_merged_is_over_all_frames() -> None:
    generator = np.random.default_rng(2)
    parts = [generator.normal(size, 1.0 + size, (size, 2)) for size in (3, 10, 40)]
    merged = statistics.merged([statistics.of_vectors(part) for part in parts])
    every = np.concatenate(parts)
    for name, expected in {
        "mean": every.mean(axis=0),
        "std": every.std(axis=0),
        "min": every.min(axis=0),
        "max": every.max(axis=0),
        "count": [53],
    }.items():
        np.testing.assert_allclose(merged[name], expected)
    weighted = np.average([np.quantile(part, 0.5, axis=0) for part in parts], axis=0, weights=(3, 10, 40))
    np.testing.assert_allclose(merged["q50"], weighted)
