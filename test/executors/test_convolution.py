from __future__ import annotations

import logging

import numpy as np
import pytest

from vla_simd_ros import _engine
from vla_simd_ros.executors.convolution import (
    ConvolutionChoice,
    ConvolutionShape,
    format_layers,
    parse_layers,
)
from vla_simd_ros.executors.convolution_timing import time_convolution
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Lifetime, Op
from vla_simd_ros.graph.programs import CompiledPolicy

SHAPE = ConvolutionShape(height=9, width=14, channels=20, filters=24, padding=1)
OTHER = ConvolutionShape(height=9, width=14, channels=24, filters=24, padding=0)


def network(kernel: int = 3, stride: int = 1, dilation: int = 1, layers: int = 1) -> CompiledPolicy:
    """Convolutions of 20 channels to 24, and then of 24 to 24, each followed by all that can be fused."""
    rng = np.random.default_rng(3)
    builder = Builder()
    x = builder.input("x", (9, 14, 20), DType.F32, Lifetime.QUERY)
    for layer in range(layers):
        shape = (24, kernel, kernel, x.shape[-1])
        weight = builder.constant(f"w{layer}", rng.normal(size=shape).astype(np.float32))
        scale, shift, mean, gamma, beta = (
            builder.constant(f"{n}{layer}", rng.normal(size=24).astype(np.float32))
            for n in ("a", "b", "m", "g", "s")
        )
        spread = builder.constant(f"v{layer}", np.full(24, 9 * x.shape[-1], np.float32))
        padding = kernel // 2 if layer == 0 else 0
        window = {"stride": stride, "padding": padding, "dilation": dilation}
        y = builder.conv2d(x, weight, **window, name=f"c{layer}")
        y = builder.batch_norm(y, scale, shift, mean, spread, eps=0.0, name=f"n{layer}")
        x = builder.film(builder.activation("relu", y, name=f"r{layer}"), gamma, beta, name=f"f{layer}")
    builder.output("y", x)
    return compile_graph(builder.graph(), FoldCache())


def convolutions(policy: CompiledPolicy) -> list[Op]:
    return [op for op in policy.programs[Lifetime.QUERY].ops if op.kind == "conv2d"]


class Clock:
    """Tells fixed times, and notes what it was asked."""

    def __init__(self, **times: float) -> None:
        self.times = {0: times["direct"], 2: times["winograd2"], 4: times["winograd4"]}
        self.asked: list[tuple[ConvolutionShape, int]] = []

    def __call__(self, shape: ConvolutionShape, side: int) -> float:
        self.asked.append((shape, side))
        return self.times[side]


@pytest.mark.parametrize(("setting", "side"), [("direct", 0), ("winograd2", 2), ("winograd4", 4)])
def test_a_named_algorithm_is_taken_untimed(setting: str, side: int) -> None:
    clock = Clock(direct=1.0, winograd2=1.0, winograd4=1.0)
    choice = ConvolutionChoice(setting, clock)
    assert [choice.side(op) for op in convolutions(network(layers=2))] == [side, side]
    assert not clock.asked


@pytest.mark.parametrize(
    ("setting", "times", "side"),
    [
        ("auto", (2.0, 1.0, 0.5), 2),
        ("auto", (2.0, 3.0, 0.5), 0),
        ("auto4", (2.0, 1.0, 0.5), 4),
        ("auto4", (2.0, 1.0, 0.99), 2),
        ("auto", (1.0, 0.97, 0.1), 0),
    ],
)
def test_auto_takes_the_fastest_that_pays(setting: str, times: tuple[float, ...], side: int) -> None:
    clock = Clock(**dict(zip(("direct", "winograd2", "winograd4"), times, strict=True)))
    (op,) = convolutions(network())
    assert ConvolutionChoice(setting, clock).side(op) == side


def test_a_shape_is_timed_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(direct=2.0, winograd2=1.0, winograd4=9.0)
    choice = ConvolutionChoice("auto", clock)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert [choice.side(op) for op in convolutions(network(layers=2))] == [2, 2]
    assert clock.asked == [(SHAPE, 0), (SHAPE, 2), (OTHER, 0), (OTHER, 2)]
    assert "winograd2 of conv2d 2.000 ms, winograd2 1.000 ms" in caplog.text


@pytest.mark.parametrize("window", [{"kernel": 1}, {"kernel": 5}, {"stride": 2}, {"dilation": 2}])
def test_other_windows_are_direct(window: dict[str, int]) -> None:
    (op,) = convolutions(network(**window))
    assert ConvolutionChoice("winograd2", Clock(direct=9.0, winograd2=1.0, winograd4=1.0)).side(op) == 0


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="convolution='fft': expected one of direct, winograd2, winograd4"):
        SimdExecutor(threads=1, convolution="fft")


@pytest.mark.parametrize("isa", _engine.available_isas())
@pytest.mark.parametrize(
    ("setting", "kernel", "tolerance"),
    [("winograd2", "winograd2_", 3e-6), ("winograd4", "winograd4_", 1e-5), ("auto4", "", 1e-5)],
)
def test_it_agrees_with_the_reference(isa: str, setting: str, kernel: str, tolerance: float) -> None:
    policy = network(layers=2)
    inputs = {"x": np.random.default_rng(8).normal(size=(9, 14, 20)).astype(np.float32)}
    expected = ReferenceExecutor().load(policy).run(Lifetime.QUERY, inputs)["y"]
    for threads in (1, 3):
        loaded = SimdExecutor(threads=threads, isa=isa, convolution=setting).load(policy)
        got = loaded.run(Lifetime.QUERY, inputs)["y"]
        assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()
        records = loaded.profile(Lifetime.QUERY, inputs, repeats=1)
        assert [record.kernel for record in records if record.op.kind == "conv2d"]
        assert all(r.kernel.startswith(kernel) for r in records if r.op.kind == "conv2d")


def test_every_algorithm_can_be_timed() -> None:
    engine = _engine.Engine(threads=2)
    for shape in (SHAPE, OTHER, ConvolutionShape(height=1, width=1, channels=1, filters=1, padding=1)):
        assert all(time_convolution(engine, shape, side) > 0 for side in (0, 2, 4))


def test_layers_as_text() -> None:
    sides = {SHAPE: 4, OTHER: 0}
    text = format_layers(sides)
    assert text == "9x14x20-24p1=winograd4, 9x14x24-24p0=direct"
    assert parse_layers(text) == sides
    assert parse_layers(" ") == {} and format_layers({}) == ""


@pytest.mark.parametrize(
    "text", ["9x14x20-24p1", "9x14x20-24p1=auto", "9x14-24p1=direct", "9x14x20-24p1=fft"]
)
def test_text_that_is_no_layer(text: str) -> None:
    with pytest.raises(
        ValueError, match=f"'{text}' is no layer, expected HxWxC-FpP=ALGORITHM with one of direct"
    ):
        parse_layers(f"{format_layers({OTHER: 2})}, {text}")


def test_known_layers_are_not_timed() -> None:
    policy = network(layers=2)
    executor = SimdExecutor(convolution="auto4", convolution_layers=format_layers({SHAPE: 4, OTHER: 0}))
    names = [executor.kernel_name(op).split("_")[0] for op in convolutions(policy)]
    assert names == ["winograd4", "conv2d"]
    again = SimdExecutor(convolution_layers=executor.convolution_layers)
    assert [again.kernel_name(op).split("_")[0] for op in convolutions(policy)] == names
