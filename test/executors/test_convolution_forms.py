from __future__ import annotations

import pytest
from convolution_shapes import OTHER, SHAPE

from vla_simd_ros.executors.convolution_forms import (
    DIRECT,
    FLAT,
    ConvolutionShape,
    Form,
    format_layers,
    parse_layers,
)

STEM = ConvolutionShape(height=20, width=30, channels=3, filters=8, kernel=7, stride=2, padding=3)


def test_layers_as_text() -> None:
    forms = {SHAPE: Form(4), OTHER: DIRECT, STEM: FLAT}
    text = format_layers(forms)
    assert text == "9x14x20-24k3s1p1=winograd4, 9x14x24-24k3s1p0=direct, 20x30x3-8k7s2p3=flat"
    assert parse_layers(text) == forms
    assert parse_layers(" ") == {} and format_layers({}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "9x14x20-24k3s1p1",
        "9x14x20-24k3s1p1=auto",
        "9x14-24k3s1p1=direct",
        "9x14x20-24k3s1p1=fft",
        "20x30x3-8k7s2p3=winograd2",
    ],
)
def test_text_that_is_no_layer(text: str) -> None:
    expected = f"'{text}' is no layer, expected HxWxC-FkKsSpP=ALGORITHM with one of direct, flat, winograd2"
    with pytest.raises(ValueError, match=expected):
        parse_layers(f"{format_layers({OTHER: Form(2)})}, {text}")


def test_a_shape_tells_its_result_and_what_can_compute_it() -> None:
    assert (SHAPE.out_size, OTHER.out_size, STEM.out_size) == ((9, 14), (7, 12), (10, 15))
    assert [form.algorithm for form in SHAPE.forms] == ["direct", "flat", "winograd2", "winograd4"]
    assert [form.algorithm for form in STEM.forms] == ["direct", "flat", "winograd4"]


def test_a_layer_that_is_there_twice_is_refused() -> None:
    with pytest.raises(
        ValueError, match="convolution_layers: 9x9x8-8k3s1p1 is there twice, expected it once"
    ):
        parse_layers("9x9x8-8k3s1p1=direct, 9x9x8-8k3s1p1=flat")
