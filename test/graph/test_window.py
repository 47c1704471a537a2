from __future__ import annotations

import re
from typing import Any

import pytest

from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.window import Window, conv_output, window_attrs


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation", "expected"),
    [(480, 7, 2, 3, 1, 240), (61, 3, 2, 1, 1, 31), (15, 3, 1, 2, 2, 15), (5, 1, 1, 0, 1, 5)],
)
def test_convolution_sizes(
    size: int, kernel: int, stride: int, padding: int, dilation: int, expected: int
) -> None:
    assert conv_output(size, kernel, stride, padding, dilation) == expected


@pytest.mark.parametrize(
    ("stride", "padding", "attrs"),
    [
        (2, 1, {"stride": 2, "padding": 1}),
        ((2, 2), ((1, 1), (1, 1)), {"stride": 2, "padding": 1}),
        ((1, 2), ((0, 0), (2, 2)), {"stride": (1, 2), "padding": ((0, 0), (2, 2))}),
        ([1, 2], [[0, 1], [2, 2]], {"stride": (1, 2), "padding": ((0, 1), (2, 2))}),
    ],
)
def test_attributes_have_one_form(stride: Any, padding: Any, attrs: dict[str, Any]) -> None:
    assert window_attrs(stride, padding, 1) == {**attrs, "dilation": 1}


def test_a_window_tells_what_is_the_same_on_all_sides() -> None:
    assert Window.of(window_attrs(2, 3, 1)).square == (2, 3)
    assert Window.of(window_attrs((2, 1), 3, 1)).square is None
    assert Window.of(window_attrs(2, ((0, 1), (0, 1)), 1)).square is None


def test_each_axis_has_its_own_size() -> None:
    window = Window.of(window_attrs((1, 2), ((0, 1), (2, 2)), 1))
    assert window.out_size((4, 9), (2, 5)) == (4, 5)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "message"),
    [
        ((1, 2, 3), 0, 1, "stride (1, 2, 3); expected a number or (down, right)"),
        (1, (1, 2), 1, "padding 1; expected a number or ((top, bottom), (left, right))"),
        (1, ((0, 1), (0, 0.5)), 1, "padding (0, 0.5); expected a number or ((top, bottom), (left, right))"),
        (0, 0, 1, "stride 0, padding 0, dilation 1; expected a stride and a dilation of at least 1"),
        (1, ((0, -1), (0, 0)), 1, "padding of at least 0"),
        (1, 0, 0, "dilation 0; expected"),
    ],
)
def test_what_is_no_window_is_refused(stride: Any, padding: Any, dilation: int, message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        window_attrs(stride, padding, dilation)
