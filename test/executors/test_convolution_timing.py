from __future__ import annotations

import pytest
from convolution_shapes import SHAPE

from vla_simd_ros import _engine
from vla_simd_ros.executors import convolution_timing
from vla_simd_ros.executors.convolution_forms import DIRECT, FLAT, ConvolutionShape, Form
from vla_simd_ros.executors.convolution_timing import time_convolution


@pytest.mark.parametrize(
    "shape",
    [
        SHAPE,
        ConvolutionShape(height=1, width=1, channels=1, filters=1, kernel=3, stride=1, padding=1),
        ConvolutionShape(height=20, width=20, channels=3, filters=8, kernel=7, stride=2, padding=3),
    ],
)
def test_every_algorithm_is_timed(shape: ConvolutionShape) -> None:
    times = time_convolution(_engine.Engine(threads=2), shape, shape.forms)
    assert list(times) == list(shape.forms)
    assert all(3 <= len(turns) <= 6 and min(turns) > 0 for turns in times.values())


def test_turns_alternate_and_the_hopeless_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Form] = []
    script = {
        DIRECT: [3.0, 9.0, 2.9, 3.1, 3.0, 3.0],
        FLAT: [9.0, 9.0, 8.0],
        Form(4): [3.5, 9.9, 2.0, 2.0, 2.1, 2.0],
    }
    left = {form: iter(times) for form, times in script.items()}

    class Timed:
        def __init__(self, engine: object, shape: object, form: Form, other: object) -> None:
            self._form = form

        def run_ms(self) -> float:
            turns.append(self._form)
            return next(left[self._form])

    monkeypatch.setattr(convolution_timing, "_Timed", Timed)
    assert time_convolution(_engine.Engine(threads=1), SHAPE, tuple(script)) == script
    a, b, c = script
    assert turns == [a, b, c, c, b, a, a, b, c, c, a, a, c, c, a]


def test_filters_beyond_the_caches_are_timed_after_other_memory_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(convolution_timing, "_EVICTING_BYTES", 1 << 12)
    monkeypatch.setattr(convolution_timing, "_NEAR_BYTES", 1 << 15)
    read: list[int] = []

    class Other:
        def __init__(self, count: int) -> None:
            self.count = count

        def max(self) -> None:
            read.append(self.count)

    monkeypatch.setattr(convolution_timing.np, "ones", Other)
    small, large = DIRECT, Form(4)  # 24 filters of 20 channels: 17 and 130 KB in panels
    time_convolution(_engine.Engine(threads=1, isa="portable"), SHAPE, (small,))
    assert read == []
    time_convolution(_engine.Engine(threads=1, isa="portable"), SHAPE, (large,))
    assert read == [512] * 6
