from __future__ import annotations

import pytest

from vla_simd_ros.executors.convolution_cost import cheapest, expected_cost
from vla_simd_ros.executors.convolution_forms import DIRECT, FLAT, ConvolutionShape, Form

TILE = (6, 16)


def shape(height: int, width: int, channels: int, filters: int, kernel: int = 3) -> ConvolutionShape:
    stride = 2 if kernel == 7 else 1
    return ConvolutionShape(height, width, channels, filters, kernel, stride, kernel // 2)


def test_products_count_in_whole_tiles_of_a_line() -> None:
    layer = shape(4, 7, channels=16, filters=24)
    # Lines of 7 pixels are tiles of 4 and 3 rows, which take as long as 6.
    assert expected_cost(layer, DIRECT, TILE) == 2 * (4 * 2 * 6) * (9 * 16) * 24
    # 28 pixels in one matrix are 5 tiles of 6 and 5 rows, but patches have to be stored.
    assert expected_cost(layer, FLAT, TILE) == 2 * (5 * 6) * (9 * 16) * 24 + 24 * 28 * (9 * 16)


def test_tiles_of_winograds_method_are_transformed() -> None:
    layer = shape(16, 24, channels=20, filters=24)
    # 24 tiles of 4x4 are 4 of 6 rows; channels count in lines of 16, filters in half tiles.
    products = 2 * 24 * (36 * 32) * 24
    assert expected_cost(layer, Form(4), TILE) == products + 14 * 24 * 36 * (20 + 24)
    stem = shape(8, 8, channels=3, filters=5, kernel=7)
    assert expected_cost(stem, Form(4, 7, 2), TILE) == 2 * 6 * (13 * 7 * 3) * 8 + 14 * 4 * 13 * (3 + 5)


@pytest.mark.parametrize("columns", [8, 16, 32])
def test_filters_that_take_longer_to_read_than_to_multiply(columns: int) -> None:
    layer = shape(1, 1, channels=512, filters=512)
    near, far = 512 * 1024, 4 * 512 * 512 * 9 - 512 * 1024
    cost = expected_cost(layer, DIRECT, (4, columns))
    assert cost == max(2 * 6 * (9 * 512) * 512, columns * (near / 8 + far / 4))
    assert (cost > 2 * 6 * (9 * 512) * 512) == (columns > 8)


def test_bulky_filters_must_save_a_quarter() -> None:
    tile = (13, 32)
    layer = ConvolutionShape(30, 40, 256, 512, 3, 2, 1)  # 42 MB of filters on tiles of 4x4
    costs = {form: expected_cost(layer, form, tile) for form in layer.forms}
    assert min(costs, key=costs.__getitem__) == Form(4, 3, 2) and cheapest(layer, layer.forms, tile).side == 2
    halves = ConvolutionShape(15, 20, 512, 512, 3, 1, 1)
    assert cheapest(halves, halves.forms, tile) == Form(4)
