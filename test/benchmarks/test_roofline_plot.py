from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from rooflines import ROUND

from vla_simd_ros.benchmarks.kernels import Layer
from vla_simd_ros.benchmarks.roofline_plot import plot_roofline
from vla_simd_ros.benchmarks.work import Work

pytest.importorskip("matplotlib")


def layer(kind: str, algorithm: str, work: Work, ms: float | None) -> Layer:
    return Layer(kind, "4x4", algorithm, 2, 4, False, algorithm != kind, work, 1.0, ms, 0.5, 0.5)


def test_a_picture_is_written(tmp_path: Path) -> None:
    layers = [
        layer("linear", "linear", Work(10**8, 10**8, 0, 10**6), 2.0),
        layer("conv2d", "direct", Work(10**8, 10**8, 0, 10**6), None),
        layer("conv2d", "winograd2", Work(10**8, 5 * 10**7, 0, 10**6), 1.0),
        layer("binary", "binary", Work(0, 0, 0, 10), 1.0),  # no floating-point work: no place on a log scale
    ]
    file = tmp_path / "roofline.png"
    plot_roofline(layers, ROUND, "a title", file)
    image = cv2.imread(str(file))
    assert image is not None and image.shape == (975, 1500, 3)
    orange = np.array([0x00, 0x5E, 0xD5])  # BGR of convolutions
    assert (np.abs(image.astype(int) - orange).sum(axis=2) < 30).any()
