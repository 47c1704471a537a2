from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest
from convolution_shapes import OTHER, SHAPE

from vla_simd_ros import _engine
from vla_simd_ros.executors.convolution import ConvolutionChoice, int8_by_winograd
from vla_simd_ros.executors.convolution_forms import (
    DIRECT,
    FLAT,
    ConvolutionShape,
    Form,
    format_layers,
)
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Lifetime, Op
from vla_simd_ros.graph.programs import CompiledPolicy


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


TILE = (6, 16)


class Clock:
    """Tells fixed times, and notes what it was asked."""

    def __init__(self, **times: float) -> None:
        self.times = times
        self.asked: list[tuple[ConvolutionShape, Form]] = []

    def __call__(self, shape: ConvolutionShape, forms: Sequence[Form]) -> dict[Form, list[float]]:
        self.asked += [(shape, form) for form in forms]
        return {form: [self.times[form.algorithm]] * 6 for form in forms}


@pytest.mark.parametrize(("setting", "side"), [("direct", 0), ("winograd2", 2), ("winograd4", 4)])
def test_a_named_algorithm_is_taken_untimed(setting: str, side: int) -> None:
    clock = Clock()
    choice = ConvolutionChoice(setting, TILE, clock)
    assert [choice.form(op).side for op in convolutions(network(layers=2))] == [side, side]
    assert not clock.asked


@pytest.mark.parametrize(
    ("expected", "other", "departs"),
    [
        ([2.0, 2.1, 2.0, 2.2, 2.0, 2.0], [1.9, 1.9, 1.9, 1.9, 1.9, 1.9], True),
        ([2.0, 2.1, 2.0, 2.2, 2.0, 2.0], [1.9, 5.0, 1.9, 1.9, 1.9, 1.9], True),
        ([2.0, 2.1, 2.0, 2.2, 2.0, 2.0], [1.96, 1.96, 1.96, 1.96, 1.96, 1.96], False),  # no 5 %
        ([2.0, 9.0, 9.0, 2.0, 2.0, 9.0], [9.0, 1.5, 1.5, 9.0, 9.0, 1.5], False),  # one or the other
        ([8.0, 8.0, 8.0], [1.5, 1.5, 1.5, 9.0, 9.0, 9.0], True),  # given up
    ],
)
def test_measured_departs_from_the_rule_where_the_gain_is_clear(
    expected: list[float], other: list[float], departs: bool
) -> None:
    (op,) = convolutions(network())
    usual = ConvolutionChoice("auto", TILE, Clock()).form(op)
    another = FLAT if usual != FLAT else DIRECT

    def times(shape: ConvolutionShape, forms: Sequence[Form]) -> dict[Form, list[float]]:
        return {form: [9.9] * 3 for form in forms} | {usual: expected, another: other}

    chosen = ConvolutionChoice("measured", TILE, times).form(op)
    assert chosen == (another if departs else usual)


def test_a_shape_is_timed_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(direct=2.0, flat=3.0, winograd2=1.0, winograd4=9.0)
    choice = ConvolutionChoice("measured", TILE, clock)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert [choice.form(op).side for op in convolutions(network(layers=2))] == [2, 2]
    forms = (DIRECT, FLAT, Form(2), Form(4))
    assert clock.asked == [(shape, form) for shape in (SHAPE, OTHER) for form in forms]
    assert "winograd2 of direct 2.000 ms, flat 3.000 ms, winograd2 1.000 ms" in caplog.text


@pytest.mark.parametrize("window", [{"kernel": 5}, {"kernel": 1, "stride": 2}, {"dilation": 2}])
def test_flat_is_for_every_window(window: dict[str, int]) -> None:
    policy = network(**window)
    inputs = {"x": np.random.default_rng(8).normal(size=(9, 14, 20)).astype(np.float32)}
    direct, flat = (
        SimdExecutor(threads=2, convolution=name).load(policy).run(Lifetime.QUERY, inputs)["y"]
        for name in ("direct", "flat")
    )
    (op,) = convolutions(policy)
    assert SimdExecutor(convolution="flat").kernel_name(op).startswith("flat_")
    assert np.abs(flat - direct).max() <= 2e-6 * np.abs(direct).max()


def test_flat_stores_no_patches_that_are_the_image() -> None:
    (op,) = convolutions(network(kernel=1))
    assert ConvolutionChoice("flat", TILE, Clock()).form(op) == DIRECT


@pytest.mark.parametrize(("width", "form"), [(64, FLAT), (65, DIRECT)])
@pytest.mark.parametrize("kernel", [1, 5])
def test_few_pixels_are_a_matrix_product(width: int, form: Form, kernel: int) -> None:
    builder = Builder()
    x = builder.input("x", (1, width, 20), DType.F32, Lifetime.QUERY)
    rng = np.random.default_rng(3)
    weight = builder.constant("w", rng.normal(size=(48, 1, kernel, 20)).astype(np.float32))
    padding = ((0, 0), (kernel // 2, kernel // 2))
    builder.output("y", builder.conv2d(x, weight, padding=padding, name="y"))
    policy = compile_graph(builder.graph(), FoldCache())
    (op,) = convolutions(policy)
    for setting in ("auto", "exact", "measured"):
        assert ConvolutionChoice(setting, TILE, Clock()).form(op) == form
    assert ConvolutionChoice("direct", TILE, Clock()).form(op) == DIRECT
    inputs = {"x": rng.normal(size=(1, width, 20)).astype(np.float32)}
    expected = ReferenceExecutor().load(policy).run(Lifetime.QUERY, inputs)["y"]
    got = SimdExecutor(threads=2).load(policy).run(Lifetime.QUERY, inputs)["y"]
    assert np.abs(got - expected).max() <= 2e-6 * np.abs(expected).max()


def test_flat_leaves_known_layers_to_their_algorithm() -> None:
    first, second = convolutions(network(layers=2))
    choice = ConvolutionChoice("flat", TILE, Clock(), {SHAPE: Form(4)})
    assert (choice.form(first), choice.form(second)) == (Form(4), FLAT)
    assert choice.chosen == {SHAPE: Form(4), OTHER: FLAT}


@pytest.mark.parametrize("window", [{"kernel": 1}, {"kernel": 5}, {"stride": 3}, {"dilation": 2}])
def test_other_windows_are_direct(window: dict[str, int]) -> None:
    (op,) = convolutions(network(**window))
    assert ConvolutionChoice("winograd2", TILE, Clock()).form(op) == DIRECT


@pytest.mark.parametrize(
    ("kernel", "stride", "setting", "form"),
    [
        (3, 2, "winograd2", Form(2, 3, 2)),
        (3, 2, "winograd4", Form(4, 3, 2)),
        (7, 2, "winograd4", Form(4, 7, 2)),
        (7, 2, "winograd2", DIRECT),
        (7, 2, "exact", FLAT),
        (7, 1, "winograd4", DIRECT),
    ],
)
def test_windows_with_a_form(kernel: int, stride: int, setting: str, form: Form) -> None:
    (op,) = convolutions(network(kernel=kernel, stride=stride))
    assert ConvolutionChoice(setting, TILE, Clock()).form(op) == form


@pytest.mark.parametrize(
    ("tile", "size", "channels", "stride", "auto", "exact"),
    [
        # many pixels: the fewest products
        ((13, 32), (120, 160), 64, 1, "winograd4", "winograd2"),
        ((13, 32), (60, 60), 128, 2, "winograd4", "winograd2"),
        # few pixels: the larger filters take longer to arrive than they save, where products are fast
        ((13, 32), (8, 8), 512, 1, "winograd2", "winograd2"),
        ((4, 8), (8, 8), 512, 1, "winograd4", "winograd2"),
        # a line of the image is less than a tile of the product
        ((13, 32), (3, 3), 512, 1, "flat", "flat"),
        ((6, 16), (3, 4), 128, 1, "winograd2", "winograd2"),
        # no channels to win with
        ((13, 32), (256, 256), 3, 2, "direct", "direct"),
    ],
)
def test_the_rule_takes_what_was_measured_to_be_fastest(
    tile: tuple[int, int], size: tuple[int, int], channels: int, stride: int, auto: str, exact: str
) -> None:
    builder = Builder()
    x = builder.input("x", (*size, channels), DType.F32, Lifetime.QUERY)
    weight = builder.constant("w", np.zeros((max(channels, 32), 3, 3, channels), np.float32))
    builder.output("y", builder.conv2d(x, weight, stride=stride, padding=1, dilation=1, name="c"))
    (op,) = convolutions(compile_graph(builder.graph(), FoldCache()))
    clock = Clock()
    assert ConvolutionChoice("auto", tile, clock).form(op).algorithm == auto
    assert ConvolutionChoice("exact", tile, clock).form(op).algorithm == exact
    assert not clock.asked


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(
        ValueError, match="convolution='fft': expected one of auto, exact, direct, flat, winograd2"
    ):
        SimdExecutor(threads=1, convolution="fft")


@pytest.mark.parametrize("isa", _engine.available_isas())
@pytest.mark.parametrize(
    ("setting", "kernel", "tolerance"),
    [
        ("flat", "flat_", 2e-6),
        ("winograd2", "winograd2_", 3e-6),
        ("winograd4", "winograd4_", 1e-5),
        ("measured", "", 1e-5),
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_it_agrees_with_the_reference(
    isa: str, setting: str, kernel: str, tolerance: float, stride: int
) -> None:
    policy = network(layers=2, stride=stride)
    inputs = {"x": np.random.default_rng(8).normal(size=(9, 14, 20)).astype(np.float32)}
    expected = ReferenceExecutor().load(policy).run(Lifetime.QUERY, inputs)["y"]
    for threads in (1, 3):
        loaded = SimdExecutor(threads=threads, isa=isa, convolution=setting).load(policy)
        got = loaded.run(Lifetime.QUERY, inputs)["y"]
        assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()
        records = loaded.profile(Lifetime.QUERY, inputs, repeats=1)
        assert [record.kernel for record in records if record.op.kind == "conv2d"]
        assert all(r.kernel.startswith(kernel) for r in records if r.op.kind == "conv2d")


def test_known_layers_are_not_timed() -> None:
    policy = network(layers=2)
    executor = SimdExecutor(
        convolution="measured", convolution_layers=format_layers({SHAPE: Form(4), OTHER: DIRECT})
    )
    names = [executor.kernel_name(op).split("_")[0] for op in convolutions(policy)]
    assert names == ["winograd4", "conv2d"]
    again = SimdExecutor(convolution_layers=executor.convolution_layers)
    assert [again.kernel_name(op).split("_")[0] for op in convolutions(policy)] == names
    known = executor.convolution_layers
    exact = SimdExecutor(isa="portable", convolution="exact", convolution_layers=known)
    assert [exact.kernel_name(op).split("_")[0] for op in convolutions(policy)] == ["winograd2", "conv2d"]


@pytest.mark.parametrize(
    ("height", "width", "channels", "pays"),
    [(8, 8, 16, True), (120, 160, 64, True), (4, 12, 64, False), (1, 70, 64, False), (8, 8, 15, False)],
)
def test_int8_by_winograd_where_tiles_and_channels_are_enough(
    height: int, width: int, channels: int, pays: bool
) -> None:
    builder = Builder()
    x = builder.input("x", (height, width, channels), DType.F32, Lifetime.QUERY)
    y = builder.conv2d(
        x, builder.constant("w", np.ones((8, 3, 3, channels), np.float32)), padding=1, name="y"
    )
    builder.output("y", y)
    (op,) = (op for op in builder.graph().ops if op.kind == "conv2d")
    assert int8_by_winograd(op, "auto", True) == pays
    assert not int8_by_winograd(op, "auto", False)
    assert not int8_by_winograd(op, "direct", True) and not int8_by_winograd(op, "flat", True)
