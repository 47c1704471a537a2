"""One stack of layers in programs of several lifetimes, whole and cut in two."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime
from vla_simd_ros.graph.partition import cut_points, partition
from vla_simd_ros.graph.programs import RUNTIME_LIFETIMES, CompiledPolicy
from vla_simd_ros.policies.blocks.causal_llama import CausalLlama
from vla_simd_ros.policies.blocks.llama import LlamaConfig
from vla_simd_ros.policies.weights import Weights

CONFIG = LlamaConfig(width=16, heads=4, kv_heads=2, head=4, feedforward=20, eps=1e-5, base=100.0)
LAYERS, ROWS = 3, 12
PARTS = {"text": (Lifetime.EPISODE, 4), "scene": (Lifetime.QUERY, 3), "tokens": (Lifetime.STEP, 2)}


class RandomTensors:
    """Weights of any name and shape."""

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        assert expected is not None
        return expected

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        sizes = {"q_proj": (16, 16), "k_proj": (8, 16), "v_proj": (8, 16), "o_proj": (16, 16)}
        sizes |= {"gate_proj": (20, 16), "up_proj": (20, 16), "down_proj": (16, 20)}
        part = name.split(".")[-2]
        values = np.random.default_rng([*name.encode()]).normal(size=sizes.get(part, (16,)))
        return (0.5 * values + ("norm" in name)).astype(np.float32)

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self.tensor(name)[start:stop]

    def mapped(self, name: str) -> Array:
        return self.tensor(name)

    def check_mapped(self) -> None:
        pass


def build() -> Graph:
    """Text, scene and tokens through one stack, each behind the one before."""
    b = Builder()
    stack = CausalLlama(CONFIG, LAYERS, ROWS, Weights(RandomTensors()))
    kept = stack.begin(b)
    for part, (lifetime, rows) in PARTS.items():
        x = b.input(part, (rows, CONFIG.width), DType.F32, lifetime)
        positions = b.input(f"{part}.positions", (rows,), DType.I32, lifetime)
        x = stack.read(b, x, positions, kept, part)
    with b.block("head"):
        b.output("y", stack.normed(b, x))
    return b.graph()


def inputs() -> dict[str, Array]:
    rng = np.random.default_rng(1)
    values: dict[str, Array] = {}
    first = 0
    for part, (_, rows) in PARTS.items():
        values[part] = rng.normal(size=(rows, CONFIG.width)).astype(np.float32)
        values[f"{part}.positions"] = np.arange(first, first + rows, dtype=np.int32)
        first += rows
    return values


def run(compiled: CompiledPolicy, simd: bool, values: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs of all programs, in order."""
    executable = (SimdExecutor(threads=2) if simd else ReferenceExecutor()).load(compiled)
    found: dict[str, Array] = {}
    for lifetime in RUNTIME_LIFETIMES:
        found |= executable.run(lifetime, compiled.programs[lifetime].own_inputs(values))
    return found


@pytest.fixture(scope="module")
def compiled() -> CompiledPolicy:
    return compile_graph(build(), FoldCache())


def test_each_part_is_computed_in_its_program(compiled: CompiledPolicy) -> None:
    attended = {}
    for lifetime in RUNTIME_LIFETIMES:
        ops = compiled.programs[lifetime].ops
        assert [op.kind for op in ops].count("append") == LAYERS
        attended[lifetime] = [op.kind for op in ops].count("cached_attention")
    # Of the parts that only leave keys and values, the last layer does no more than that.
    assert list(attended.values()) == [LAYERS - 1, LAYERS - 1, LAYERS]


@pytest.mark.parametrize("simd", [False, True])
def test_parts_give_what_the_whole_gives(compiled: CompiledPolicy, simd: bool) -> None:
    """Rows in three programs, against all of them at once in one."""
    values = inputs()
    b = Builder()
    stack = CausalLlama(CONFIG, LAYERS, ROWS, Weights(RandomTensors()))
    x = b.input("x", (9, CONFIG.width), DType.F32, Lifetime.STEP)
    positions = b.input("positions", (9,), DType.I32, Lifetime.STEP)
    b.output("y", stack.normed(b, stack.read(b, x, positions, stack.begin(b), "all")))
    whole = {"x": np.concatenate([values[part] for part in PARTS]), "positions": np.arange(9, dtype=np.int32)}
    expected = run(compile_graph(b.graph(), FoldCache()), False, whole)["y"][-2:]
    np.testing.assert_allclose(run(compiled, simd, values)["y"], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("after", ["scene.0", "scene.1", "scene.2"])
def test_a_cut_leaves_every_state_where_it_is_read(compiled: CompiledPolicy, after: str) -> None:
    """The scene's layers up to a cut on one executor, all steps on another, which has all keys and values."""
    assert after in cut_points(compiled)
    values = inputs()
    cut = partition(compiled, after)
    crossed = run(cut.prefix, False, values)
    assert {t.name for t in cut.boundary} == set(crossed)
    assert not any(t.shape == (ROWS, 2 * CONFIG.key_width) for t in cut.boundary)
    given = {name: value.astype(np.float32) for name, value in crossed.items()}
    got = run(cut.suffix, True, values | given)["y"]
    np.testing.assert_allclose(got, run(compiled, False, values)["y"], rtol=2e-5, atol=2e-5)
