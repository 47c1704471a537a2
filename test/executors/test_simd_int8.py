"""INT8 layers on the engine against the reference evaluator, in every variant that this machine has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_policy import INPUTS, int8_policy

from vla_simd_ros import _engine
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.settings import SettingError
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.errors import GraphError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.graph.passes.quantize import with_int8_layers
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy

RNG = np.random.default_rng(3)


@pytest.fixture(params=_engine.available_int8())
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimdExecutor:
    monkeypatch.setenv("VLA_SIMD_INT8", request.param)
    made = SimdExecutor(threads=2)
    assert made.int8_isa == request.param
    return made


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def in_int8(builder: Builder, result: Tensor) -> CompiledPolicy:
    builder.output("y", result)
    policy = compile_graph(builder.graph(), FoldCache())
    ops = [op for program in policy.programs.values() for op in program.ops]
    return with_int8_layers(policy, {op.output for op in ops if op.kind in ("linear", "conv2d")})


def results(executor: SimdExecutor | ReferenceExecutor, policy: CompiledPolicy, x: Array) -> Array:
    return executor.load(policy).run(Lifetime.QUERY, {"x": x})["y"]


def linear_layer(x: Array, weight: Array) -> CompiledPolicy:
    builder = Builder()
    source = builder.input("x", x.shape, DType.F32, Lifetime.QUERY)
    return in_int8(builder, builder.linear(source, builder.constant("w", weight), name="layer"))


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 33, 7), (29, 70, 130), (40, 64, 512), (5, 96, 2050)]
)
def test_linear_layers_are_exact(executor: SimdExecutor, m: int, n: int, k: int) -> None:
    x, weight = normal(m, k), normal(n, k)
    x[m // 2] = 0
    weight[n // 3] = 0
    x[-1, 0] = 1e4
    policy = linear_layer(x, weight)
    expected = results(ReferenceExecutor(np.float32), policy, x)
    assert results(executor, policy, x).tobytes() == expected.tobytes()


@pytest.mark.parametrize("units", [1, 64, 100, 190, 400])
def test_values_near_the_smallest_numbers(executor: SimdExecutor, units: int) -> None:
    x = np.array([[units, -units, units // 2, 0]], np.float32) * np.float32(1e-45)
    policy = linear_layer(x, normal(3, 4) * np.float32(1e30))
    np.testing.assert_array_equal(
        results(executor, policy, x), results(ReferenceExecutor(np.float32), policy, x)
    )


@pytest.mark.parametrize("channels", [1, 3, 6, 64])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(1, 1, 0, 1), (1, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (7, 2, 3, 1), (2, 1, 0, 3)],
)
def test_convolutions_are_exact(
    executor: SimdExecutor, channels: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    x = normal(9, 17, channels)
    builder = Builder()
    source = builder.input("x", x.shape, DType.F32, Lifetime.QUERY)
    weight = builder.constant("w", normal(37, kernel, kernel, channels))
    window = {"stride": stride, "padding": padding, "dilation": dilation}
    policy = in_int8(builder, builder.conv2d(source, weight, name="conv", **window))
    expected = results(ReferenceExecutor(np.float32), policy, x)
    assert results(executor, policy, x).tobytes() == expected.tobytes()
    again = executor.load(policy)
    again.run(Lifetime.QUERY, {"x": np.zeros_like(x)})
    assert again.run(Lifetime.QUERY, {"x": x})["y"].tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [
        ((1, 16), (1, 5), 1, ((0, 0), (2, 2))),
        ((1, 16), (1, 3), (1, 2), ((0, 0), (1, 1))),
        ((9, 7), (3, 3), 2, ((0, 1), (0, 1))),
        ((9, 7), (2, 4), (1, 3), ((1, 0), (3, 2))),
    ],
)
def test_windows_that_differ_between_the_axes_are_exact(
    executor: SimdExecutor, size: tuple[int, int], kernel: tuple[int, int], stride: Any, padding: Any
) -> None:
    x = normal(*size, 40)
    builder = Builder()
    source = builder.input("x", x.shape, DType.F32, Lifetime.QUERY)
    weight = builder.constant("w", normal(37, *kernel, 40))
    policy = in_int8(builder, builder.conv2d(source, weight, name="conv", stride=stride, padding=padding))
    expected = results(ReferenceExecutor(np.float32), policy, x)
    assert results(executor, policy, x).tobytes() == expected.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 66])
def test_a_row_with_no_number_has_no_results(executor: SimdExecutor, value: float, column: int) -> None:
    x = normal(5, 67)
    policy = linear_layer(x, normal(9, 67))
    whole = results(executor, policy, x)
    x[3, column] = value
    got = results(executor, policy, x)
    assert not np.isfinite(got[3]).any()
    np.testing.assert_array_equal(np.delete(got, 3, axis=0), np.delete(whole, 3, axis=0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0, 0), (20, 30, 17), (39, 50, 32)])
@pytest.mark.parametrize("stride", [1, 2])
def test_an_image_with_no_number_has_no_results(
    executor: SimdExecutor, value: float, place: tuple[int, int, int], stride: int
) -> None:
    """Wherever it is: parts of an image are looked through by different threads."""
    x, builder = normal(40, 51, 33), Builder()
    x[place] = value
    source = builder.input("x", x.shape, DType.F32, Lifetime.QUERY)
    weight = builder.constant("w", normal(8, 3, 3, 33))
    policy = in_int8(builder, builder.conv2d(source, weight, name="conv", stride=stride, padding=1))
    assert not np.isfinite(results(executor, policy, x)).any()


def test_a_channel_with_a_weight_that_is_no_number_has_no_results(executor: SimdExecutor) -> None:
    x, weight = normal(5, 67), normal(9, 67)
    weight[4, 66] = np.nan
    got = results(executor, linear_layer(x, weight), x)
    assert np.isnan(got[:, 4]).all() and np.isfinite(np.delete(got, 4, axis=1)).all()


def test_a_whole_policy(executor: SimdExecutor) -> None:
    """A value that differs in its last bit may round to the next integer, which is 1/127 of the largest."""
    policy = int8_policy()
    got, reference = executor.load(policy), ReferenceExecutor(np.float32).load(policy)
    for lifetime in RUNTIME_LIFETIMES:
        inputs = INPUTS[lifetime]
        outputs, expected = got.run(lifetime, inputs), reference.run(lifetime, inputs)
        for name, value in expected.items():
            np.testing.assert_allclose(outputs[name], value, atol=1e-2 * np.abs(value).max())


def test_kernels_are_named_after_the_variant(executor: SimdExecutor) -> None:
    policy = int8_policy()
    ops = [op for program in policy.programs.values() for op in program.ops]
    for op in (op for op in ops if op.kind in ("linear", "conv2d")):
        assert executor.kernel_name(op).startswith(f"{op.kind}_int8_{executor.int8_isa}_")


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "dilation", "fits"),
    [
        (16, 3, 1, 1, True),
        (250, 3, 1, 1, True),
        (15, 3, 1, 1, False),
        (16, 3, 2, 1, False),
        (16, 3, 1, 2, False),
        (16, 1, 1, 1, False),
    ],
)
def test_winograd_gives_the_bits_of_the_direct_method(
    executor: SimdExecutor, channels: int, kernel: int, stride: int, dilation: int, fits: bool
) -> None:
    """Of extremes: every value has the largest magnitude."""
    x, builder = np.sign(normal(10, 13, channels)), Builder()
    source = builder.input("x", x.shape, DType.F32, Lifetime.QUERY)
    weight = builder.constant("w", np.sign(normal(21, kernel, kernel, channels)))
    window = {"stride": stride, "padding": 1, "dilation": dilation}
    policy = in_int8(builder, builder.conv2d(source, weight, name="conv", **window))
    (op,) = (op for op in policy.programs[Lifetime.QUERY].ops if op.kind == "conv2d")
    direct = SimdExecutor(threads=2, convolution="direct")
    assert direct.kernel_name(op).startswith("conv2d_int8_")
    wide = executor.int8_isa in ("avx2", "avx512")
    name = "winograd4" if fits and wide else "conv2d"
    assert executor.kernel_name(op).startswith(f"{name}_int8_{executor.int8_isa}_")
    assert results(executor, policy, x).tobytes() == results(direct, policy, x).tobytes()
    np.testing.assert_array_equal(
        results(executor, policy, x), results(ReferenceExecutor(np.float32), policy, x)
    )


def test_sums_that_32_bits_may_not_hold_are_refused() -> None:
    x = np.zeros((1, 133145), np.float32)
    with pytest.raises(GraphError, match=r"'layer'.*1x133145 weights per channel, expected at most 133144"):
        SimdExecutor(threads=1).load(linear_layer(x, np.ones((1, x.size), np.float32)))


@pytest.mark.parametrize("isa", _engine.available_isas())
def test_the_variant_has_the_vectors_of_the_isa(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLA_SIMD_INT8", raising=False)
    variants = {"avx2": ("avxvnni", "avx2"), "avx512": ("avx512vnni", "avx512"), "neon": ("neondot", "neon")}
    assert SimdExecutor(threads=1, isa=isa).int8_isa in variants.get(isa, (isa,))


def test_unknown_variants_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLA_SIMD_INT8", "mmx")
    with pytest.raises(SettingError, match=r"VLA_SIMD_INT8='mmx': unknown INT8 kernels, .*portable"):
        SimdExecutor(threads=1)
