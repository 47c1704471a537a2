from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.checkpoints.normalization import NormMode, make_normalizer, make_unnormalizer
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.policies.blocks.normalization import normalized_image, normalized_vector, unnormalized

STATE = Feature("observation.state", FeatureKind.STATE, (3,))
CAMERA = Feature("observation.images.top", FeatureKind.VISUAL, (3, 2, 2))
ACTION = Feature("action", FeatureKind.ACTION, (3,))
STATS = {
    "mean": np.array([0.1, -0.2, 0.3], np.float32),
    "std": np.array([0.5, 2.0, 1.0], np.float32),
    "min": np.array([-1.0, 0.0, 2.0], np.float32),
    "max": np.array([1.0, 4.0, 2.0], np.float32),
}
X = np.array([[0.7, -1.5, 2.5]], np.float32)


def normalized(mode: NormMode) -> tuple[Array, int]:
    b = Builder()
    x = b.input("x", (1, 3), DType.F32, Lifetime.QUERY)
    normalizer = make_normalizer(STATE, mode, STATS, 1e-8, "test")
    b.output("y", normalized_vector(b, x, normalizer, name="state"))
    graph = b.graph()
    return run_graph(graph, {"x": X})[graph.outputs["y"]], len(graph.ops)


def test_mean_and_deviation() -> None:
    got, _ = normalized(NormMode.MEAN_STD)
    np.testing.assert_allclose(got, (X - STATS["mean"]) / (STATS["std"] + np.float32(1e-8)), rtol=1e-6)


def test_a_range_is_mapped_to_minus_one_and_one() -> None:
    got, _ = normalized(NormMode.MIN_MAX)
    np.testing.assert_allclose(got[0, :2], [0.7, -1.75], rtol=1e-6)
    assert got[0, 2] == pytest.approx(2 * (2.5 - 2.0) / 1e-8 - 1), "a range of nothing is eps wide"


def test_the_identity_costs_nothing() -> None:
    got, operations = normalized(NormMode.IDENTITY)
    np.testing.assert_array_equal(got, X)
    assert operations == 0


@pytest.mark.parametrize("mode", [NormMode.MEAN_STD, NormMode.MIN_MAX])
def test_actions_come_back_in_robot_units(mode: NormMode) -> None:
    b = Builder()
    x = b.input("x", (1, 3), DType.F32, Lifetime.QUERY)
    unnormalizer = make_unnormalizer(ACTION, mode, STATS, 1e-8, "test")
    b.output("y", unnormalized(b, x, unnormalizer, name="action"))
    graph = b.graph()
    got = run_graph(graph, {"x": X})[graph.outputs["y"]]
    scale, offset = unnormalizer.affine()
    np.testing.assert_allclose(got, X.astype(np.float64) * scale + offset)


def test_images_are_scaled_to_one_first() -> None:
    b = Builder()
    image = b.input("x", (2, 2, 3), DType.U8, Lifetime.QUERY)
    normalizer = make_normalizer(CAMERA, NormMode.MEAN_STD, STATS, 1e-8, "test")
    b.output("y", normalized_image(b, image, normalizer, name="top"))
    graph = b.graph()
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20
    got = run_graph(graph, {"x": pixels})[graph.outputs["y"]]
    np.testing.assert_allclose(got, (pixels / 255 - STATS["mean"]) / STATS["std"], rtol=1e-6)
