from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.checkpoints.normalization import NormMode, make_normalizer, make_unnormalizer

WIDTH = 4
EPS = 1e-8
STATE = Feature("observation.state", FeatureKind.STATE, (WIDTH,))
IMAGE = Feature("observation.images.top", FeatureKind.VISUAL, (3, 8, 8))
RANGES = [NormMode.MIN_MAX, NormMode.QUANTILES, NormMode.QUANTILE10]

vectors = npst.arrays(np.float32, WIDTH, elements=st.floats(-100, 100, width=32))
widths = npst.arrays(np.float32, WIDTH, elements=st.floats(0.0078125, 100, width=32))


def normalize(x: Any, mode: NormMode, stats: dict[str, Any]) -> Any:
    made = make_normalizer(STATE, mode, stats, EPS, "file")
    y = (x - made.offset) / made.divisor
    return y if made.shift is None else y + made.shift


@given(vectors, vectors, widths)
def test_mean_std(x: Any, mean: Any, std: Any) -> None:
    y = normalize(x, NormMode.MEAN_STD, {"mean": mean, "std": std})

    np.testing.assert_array_equal(y, (x - mean) / (std + np.float32(EPS)))


@pytest.mark.parametrize("mode", RANGES)
@given(x=vectors, low=vectors, width=widths)
def test_ranges_map_to_minus_one_and_one(mode: NormMode, x: Any, low: Any, width: Any) -> None:
    first, second = mode.statistics
    high = low + width
    y = normalize(x, mode, {first: low, second: high})

    exact = 2 * (x.astype(np.float64) - low) / (high - low).astype(np.float64) - 1
    # A narrow range far from zero: its centre is rounded to float32.
    centre_error = float((np.spacing(np.abs(low) + width) / width).max())
    atol = 1e-4 * float(np.abs(exact).max() + 1) + centre_error
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("mode", [NormMode.MEAN_STD, *RANGES])
@given(x=vectors, low=vectors, width=widths)
def test_unnormalizing_undoes_normalizing(mode: NormMode, x: Any, low: Any, width: Any) -> None:
    first, second = mode.statistics
    stats = {first: low, second: width if mode is NormMode.MEAN_STD else low + width}
    scale, offset = make_unnormalizer(STATE, mode, stats, EPS, "file").affine()

    np.testing.assert_allclose(normalize(x, mode, stats) * scale + offset, x, atol=2e-3)


def test_identity_needs_no_statistics() -> None:
    np.testing.assert_array_equal(normalize(np.arange(WIDTH), NormMode.IDENTITY, {}), np.arange(WIDTH))
    scale, offset = make_unnormalizer(STATE, NormMode.IDENTITY, {}, EPS, "file").affine()
    np.testing.assert_array_equal(scale, np.ones(WIDTH))
    np.testing.assert_array_equal(offset, np.zeros(WIDTH))


def test_a_channel_that_never_moves_maps_to_minus_one() -> None:
    low = np.array([1.0, 0.7, -2.0, 0.0], np.float32)
    stats = {"min": low, "max": low + np.array([1, 0, 1, 0], np.float32)}

    np.testing.assert_array_equal(normalize(low, NormMode.MIN_MAX, stats), [-1, -1, -1, -1])
    scale, offset = make_unnormalizer(STATE, NormMode.MIN_MAX, stats, EPS, "file").affine()
    assert (np.full(WIDTH, -1, np.float32) * scale + offset)[1] == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("mode", "stats", "complaint"),
    [
        (NormMode.MEAN_STD, {"mean": np.zeros(4), "std": np.array([1, 1, 0, 1])}, "std and eps"),
        (NormMode.MIN_MAX, {"min": np.zeros(4), "max": np.array([1, 1, 0, 1])}, "min and max and eps"),
    ],
)
def test_without_eps_a_channel_that_never_moves_is_refused(
    mode: NormMode, stats: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(CheckpointError, match=f"{complaint} leave nothing to divide by in channel 2"):
        make_normalizer(STATE, mode, stats, 0.0, "file")
    scale, offset = make_unnormalizer(STATE, mode, stats, 0.0, "file").affine()
    assert (scale[2], offset[2]) == (0, 0)


def test_a_range_becomes_its_centre_and_half_its_width() -> None:
    stats = {"min": np.full(4, -1.0, np.float32), "max": np.full(4, 3.0, np.float32)}
    made = make_normalizer(STATE, NormMode.MIN_MAX, stats, EPS, "")

    np.testing.assert_array_equal(made.offset, np.ones(4))
    np.testing.assert_array_equal(made.divisor, np.full(4, 2.0))
    assert made.shift is None


def test_image_statistics_may_be_flat_or_stored_over_pixels() -> None:
    mean, std = np.array([0.1, 0.2, 0.3], np.float32), np.array([0.4, 0.5, 0.6], np.float32)
    for shape in [(3,), (3, 1, 1)]:
        stats = {"mean": mean.reshape(shape), "std": std.reshape(shape)}
        made = make_normalizer(IMAGE, NormMode.MEAN_STD, stats, EPS, "file")
        np.testing.assert_array_equal(made.offset, mean)


@pytest.mark.parametrize(
    ("stats", "complaint"),
    [
        ({"mean": np.zeros(4)}, r"'observation.state.std' is missing, MEAN_STD needs it \(present: mean\)"),
        ({}, r"'observation.state.mean' is missing, MEAN_STD needs it \(present: none\)"),
        (
            {"mean": np.zeros(3), "std": np.ones(4)},
            r"'observation.state.mean' has shape \[3\], expected \[4\] for a feature of shape \[4\]",
        ),
        ({"mean": np.zeros(4), "std": np.full(4, np.nan)}, "'observation.state.std' is not finite"),
        ({"mean": np.full(4, np.inf), "std": np.ones(4)}, "'observation.state.mean' is not finite"),
        ({"mean": np.zeros(4), "std": np.full(4, -1.0)}, "'observation.state.std' is negative"),
    ],
)
def test_names_the_statistic_that_is_wrong(stats: dict[str, Any], complaint: str) -> None:
    for make in (make_normalizer, make_unnormalizer):
        with pytest.raises(CheckpointError, match=f"file: statistic {complaint}"):
            make(STATE, NormMode.MEAN_STD, stats, EPS, "file")


@pytest.mark.parametrize("mode", [NormMode.IDENTITY, NormMode.MEAN_STD, NormMode.MIN_MAX])
def test_the_inverse_of_an_unnormalizer(mode: NormMode) -> None:
    feature = Feature("action", FeatureKind.ACTION, (2,))
    stats = {
        name: np.array(values, np.float32)
        for name, values in {"mean": (1, 2), "std": (0.5, 4), "min": (-1, 0), "max": (1, 5)}.items()
    }
    unnormalizer = make_unnormalizer(feature, mode, stats, 1e-8, "")
    inverse = unnormalizer.inverse()
    rows = np.array([[0.25, -3.0]], np.float32)
    scale, offset = unnormalizer.affine()
    np.testing.assert_allclose((rows * scale + offset - inverse.offset) / inverse.divisor, rows, rtol=1e-6)


def test_the_inverse_for_a_channel_of_one_value() -> None:
    feature = Feature("action", FeatureKind.ACTION, (1,))
    stats = {"mean": np.array([3], np.float32), "std": np.zeros(1, np.float32)}
    inverse = make_unnormalizer(feature, NormMode.MEAN_STD, stats, 1e-8, "").inverse()
    assert (inverse.offset.tolist(), inverse.divisor.tolist()) == ([3], [1])
