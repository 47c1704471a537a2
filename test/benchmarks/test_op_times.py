from __future__ import annotations

import numpy as np
import pytest
from iterating_policy import IteratingPolicy

from vla_simd_ros.benchmarks.op_times import ProfiledPolicy, algorithm_of, shape_text
from vla_simd_ros.benchmarks.work import op_work
from vla_simd_ros.executors.settings import EngineSettings
from vla_simd_ros.fidelity.cases import Case
from vla_simd_ros.fidelity.programs import InstructedPolicy
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import DType, Lifetime, Op
from vla_simd_ros.graph.programs import CompiledPolicy
from vla_simd_ros.inference import make_sampler
from vla_simd_ros.observation import blank_observation

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def compiled() -> CompiledPolicy:
    b = Builder()
    image = b.input("image", (9, 8, 3), DType.F32, Lifetime.QUERY)
    features = b.conv2d(image, b.constant("filter", weights(4, 3, 3, 3)), stride=2, padding=1, name="conv")
    tokens = b.reshape(features, (20, 4), name="tokens")
    q = b.linear(tokens, b.constant("wq", weights(8, 4)), b.constant("bq", weights(8)), name="q")
    mixed = b.attention(q, q, q, heads=2, kv_heads=2, scale=0.5, name="mixed")
    b.output("action", b.add(mixed, q, name="action"))
    return compile_graph(b.graph(), FoldCache())


def op_of(compiled: CompiledPolicy, kind: str) -> Op:
    return next(op for op in compiled.programs[Lifetime.QUERY].ops if op.kind == kind)


@pytest.mark.parametrize(
    ("kind", "shape", "flops"),
    [
        ("linear", "20x4x8", 2 * 20 * 4 * 8),
        ("conv2d", "9x8x3 3x3/2 4", 2 * (5 * 4 * 4) * (3 * 3 * 3)),
        ("attention", "20x20 2 heads of 4", 4 * 20 * 20 * 8),
        ("binary", "20x8", 20 * 8),
    ],
)
def test_shape_and_work(compiled: CompiledPolicy, kind: str, shape: str, flops: int) -> None:
    op = op_of(compiled, kind)
    assert shape_text(op) == shape
    assert op_work(op).flops == flops


@pytest.mark.parametrize(
    ("kernel", "algorithm"),
    [
        ("conv2d_avx2_6x16", "direct"),
        ("winograd4_avx2_6x16", "winograd4"),
        ("layer_norm_avx2", "layer_norm"),
        ("copy", "copy"),
        ("conv2d_int8_avxvnni_6x16", "direct"),
        ("winograd4_int8_avx2_6x16", "winograd4"),
        ("linear_int8_avx2_6x16", "linear"),
    ],
)
def test_the_algorithm_in_the_name_of_a_kernel(kernel: str, algorithm: str) -> None:
    assert algorithm_of(kernel, "avx2") == algorithm


def test_a_step_is_profiled_once_and_counts_as_often_as_it_is_run() -> None:
    definition = IteratingPolicy(noise_per_step=True)
    sampler = make_sampler(definition, 0)
    policy = InstructedPolicy(definition.spec, compile_graph(definition.build(), FoldCache()), None, sampler)
    observation = blank_observation(definition.spec)
    times = ProfiledPolicy(policy, EngineSettings(threads=1)).profile(Case(observation, num_steps=6), 2)
    programs = {op.program: op.runs for op in times}
    assert programs == {"query": 1, "step": 6}
    assert {op.kind for op in times if op.program == "step"} >= {"linear", "binary"}


def test_strides_that_differ_are_shown() -> None:
    b = Builder()
    x = b.input("x", (4, 8, 3), DType.F32, Lifetime.QUERY)
    b.output("y", b.conv2d(x, b.constant("w", weights(2, 1, 5, 3)), stride=(1, 2), name="y"))
    (op,) = b.graph().ops
    assert shape_text(op) == "4x8x3 1x5/1x2 2"
