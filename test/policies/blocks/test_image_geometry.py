from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.policies.blocks.image_geometry import (
    bicubic,
    centre_crop,
    letterboxed,
    smoothly_resized,
)


def resized(image: Array, height: int, width: int) -> Array:
    b = Builder()
    x = b.input("x", image.shape, DType.F32, Lifetime.QUERY)
    b.output("y", smoothly_resized(b, x, height, width, name="y"))
    graph = b.graph()
    return run_graph(graph, {"x": image.astype(np.float32)})[graph.outputs["y"]]


def pixel_by_pixel(image: Array, height: int, width: int) -> Array:
    """Each pixel the mean of those under a triangle about its centre."""
    rows, columns, channels = image.shape
    result = np.zeros((height, width, channels))
    for i in range(height):
        for j in range(width):
            total = 0.0
            for y in range(rows):
                for x in range(columns):
                    scale_y, scale_x = max(rows / height, 1), max(columns / width, 1)
                    from_y = abs(y + 0.5 - (i + 0.5) * rows / height) / scale_y
                    from_x = abs(x + 0.5 - (j + 0.5) * columns / width) / scale_x
                    weight = max(0.0, 1 - from_y) * max(0.0, 1 - from_x)
                    result[i, j] += weight * image[y, x]
                    total += weight
            result[i, j] /= total
    return result


@pytest.mark.parametrize("size", [(3, 4), (12, 5), (5, 14), (9, 11), (1, 1)])
def test_pixels_are_means_under_a_triangle(size: tuple[int, int]) -> None:
    image = np.random.default_rng(1).normal(size=(9, 11, 3)).astype(np.float32)
    np.testing.assert_allclose(resized(image, *size), pixel_by_pixel(image, *size), rtol=0, atol=1e-6)


def test_the_same_size_is_the_same_image() -> None:
    image = np.random.default_rng(2).normal(size=(6, 7, 3)).astype(np.float32)
    np.testing.assert_array_equal(resized(image, 6, 7), image)


@pytest.mark.parametrize(
    ("size", "start"), [((4, 4), (3, 2)), ((5, 5), (2, 2)), ((10, 9), (0, 0)), ((7, 8), (2, 0))]
)
def test_the_crop_is_in_the_middle(size: tuple[int, int], start: tuple[int, int]) -> None:
    """A half pixel goes to the even side: 2.5 and 1.5 to 2, 0.5 to 0."""
    image = np.random.default_rng(3).integers(0, 256, (10, 9, 3), dtype=np.uint8)
    b = Builder()
    x = b.input("x", image.shape, DType.U8, Lifetime.QUERY)
    b.output("y", centre_crop(b, x, *size, name="y"))
    graph = b.graph()
    (top, left), (height, width) = start, size
    np.testing.assert_array_equal(
        run_graph(graph, {"x": image})[graph.outputs["y"]], image[top : top + height, left : left + width]
    )


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((30, 40), (14, 14)), ((9, 13), (28, 30)), ((17, 17), (17, 5)), ((12, 20), (12, 33)), ((3, 2), (7, 7))],
    ids=str,
)
def test_bicubic_pixels_are_those_of_pillow(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    image_library = pytest.importorskip("PIL.Image")
    image = np.random.default_rng(4).integers(0, 256, (*size, 3)).astype(np.uint8)
    b = Builder()
    x = b.input("x", image.shape, DType.U8, Lifetime.QUERY)
    y = bicubic(b, x, *wanted, name="y")
    b.output("y", y)
    expected = image_library.fromarray(image)
    # One side after the other: which goes first depends on the library's version.
    for height, width in ((size[0], wanted[1]), wanted):
        expected = expected.resize((width, height), image_library.Resampling.BICUBIC)
    np.testing.assert_array_equal(run_graph(b.graph(), {"x": image})[y], np.asarray(expected))


def test_an_image_of_the_wanted_size_is_left_alone() -> None:
    b = Builder()
    x = b.input("x", (5, 6, 3), DType.U8, Lifetime.QUERY)
    assert bicubic(b, x, 5, 6, name="y") is x


@pytest.mark.parametrize("size", [(6, 9), (9, 5), (7, 7), (4, 8)])
def test_a_letterbox_in_the_middle_has_the_odd_line_below_and_on_the_right(size: tuple[int, int]) -> None:
    image = np.random.default_rng(1).uniform(0, 1, (*size, 3)).astype(np.float32)

    def boxed(centred: bool) -> Array:
        b = Builder()
        x = b.input("x", image.shape, DType.F32, Lifetime.QUERY)
        y = letterboxed(b, x, 8, 8, -1.0, name="y", centred=centred)
        b.output("y", y)
        return run_graph(b.graph(), {"x": image})[y]

    corner, middle = boxed(False), boxed(True)
    missing = [int((corner == -1).all(axis=(2, axis)).sum()) for axis in (1, 0)]
    moved = np.roll(corner, [-(count - count // 2) for count in missing], axis=(0, 1))
    np.testing.assert_array_equal(middle, moved)
    assert middle.shape == (8, 8, 3)
