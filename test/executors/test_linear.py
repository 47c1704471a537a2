from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros import _engine
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy


def layer(rows: int, depth: int, cols: int, *, halves: bool = False) -> CompiledPolicy:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((cols, depth), np.float32)
    if halves:
        weights.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
    b = Builder()
    x = b.input("x", (rows, depth), DType.F32, Lifetime.QUERY)
    bias = b.constant("bias", rng.standard_normal(cols, np.float32))
    y = b.linear(x, b.constant("w", weights), bias, name="y")
    b.output("y", b.activation("gelu", y, name="gelu"))
    return compile_graph(b.graph(), FoldCache())


def run(executor: SimdExecutor | ReferenceExecutor, compiled: CompiledPolicy) -> Array:
    shape = compiled.programs[Lifetime.QUERY].inputs["x"].shape
    x = np.random.default_rng(2).standard_normal(shape, np.float32)
    return executor.load(compiled).run(Lifetime.QUERY, {"x": x})["y"]


def algorithm(executor: SimdExecutor, compiled: CompiledPolicy) -> str:
    (op,) = compiled.programs[Lifetime.QUERY].ops
    return executor.kernel_name(op).partition(f"_{executor.isa}")[0]


@pytest.mark.parametrize("isa", _engine.available_isas())
@pytest.mark.parametrize(("rows", "depth", "cols"), [(61, 96, 192), (2, 32, 64), (130, 1056, 128)])
def test_strassens_method_computes_the_layer(isa: str, rows: int, depth: int, cols: int) -> None:
    compiled = layer(rows, depth, cols)
    executor = SimdExecutor(threads=2, isa=isa, linear="strassen")
    assert algorithm(executor, compiled) == "strassen"
    expected = run(ReferenceExecutor(), compiled)
    assert np.abs(run(executor, compiled) - expected).max() <= 4e-6 * np.abs(expected).max()
    assert executor.weight_bytes["float32"] == 7 * depth * cols


def test_bits_depend_neither_on_threads_nor_on_the_schedule() -> None:
    compiled = layer(301, 512, 512)
    expected = run(SimdExecutor(threads=1, linear="strassen"), compiled)
    for changes in ({"threads": 2}, {"threads": 3, "schedule": "static"}, {"threads": 2, "block_rows": 50}):
        assert np.array_equal(run(SimdExecutor(linear="strassen", **changes), compiled), expected)


@pytest.mark.parametrize(
    ("rows", "depth", "cols", "expected"),
    [
        (256, 512, 512, "strassen"),
        (255, 512, 512, "linear"),
        (256, 480, 512, "linear"),
        (256, 512, 448, "linear"),
        (256, 528, 512, "linear"),  # halves of the depth are not whole lines
        (256, 512, 560, "linear"),  # nor those of the columns whole panels
    ],
)
def test_large_layers_that_divide_into_quarters_are_computed_so(
    rows: int, depth: int, cols: int, expected: str
) -> None:
    compiled = layer(rows, depth, cols)
    assert algorithm(SimdExecutor(threads=1), compiled) == expected
    assert algorithm(SimdExecutor(threads=1, linear="direct"), compiled) == "linear"
    assert algorithm(SimdExecutor(threads=1, weight_packing="off"), compiled) == "linear_rows"


def test_weights_in_bfloat16_stay_so() -> None:
    compiled = layer(256, 512, 512, halves=True)
    executor, direct = (SimdExecutor(threads=1, linear=linear) for linear in ("auto", "direct"))
    assert np.array_equal(run(executor, compiled), run(direct, compiled))
    assert executor.weight_bytes == {"float32": 0, "bfloat16": 2 * 512 * 512, "int8": 0}
    (record,) = executor.load(compiled).profile(Lifetime.QUERY, {"x": np.zeros((256, 512), np.float32)}, 1)
    assert record.kernel.startswith("linear_")
