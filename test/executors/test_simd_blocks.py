"""Weights in blocks of few bits: the same results, to the last bit, as their values in float32 give."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros import _engine
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.blocks import BLOCK_BYTES, Blocks
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, LazyArray, Lifetime
from vla_simd_ros.graph.programs import CompiledPolicy

WIDTH, HIDDEN, WORDS = 96, 160, 130


class BlockArray(LazyArray):
    """Random blocks, and their values by the definition of the format."""

    def __init__(self, form: str, rows: int, cols: int, seed: int) -> None:
        super().__init__((rows, cols), np.float32)
        rng = np.random.default_rng(seed)
        halves = 2 if form == "q4_1" else 1
        data = rng.integers(0, 256, (rows * cols // 32, BLOCK_BYTES[form]), np.uint8)
        self._scales = rng.normal(size=(len(data), halves)).astype(np.float16)
        data[:, : 2 * halves] = self._scales.view(np.uint8)
        self._integers = data[:, 2 * halves :]
        self._blocks = Blocks(form, data.reshape(rows, -1))

    @property
    def block_form(self) -> str | None:
        return self._blocks.form

    def blocks(self) -> Blocks | None:
        return self._blocks

    def _make(self) -> Array:
        scale = self._scales[:, :1].astype(np.float64)
        if self.block_form == "q8_0":
            values = scale * self._integers.view(np.int8)
        else:
            q = np.concatenate([self._integers & 15, self._integers >> 4], axis=1)
            least = -8 * scale if self.block_form == "q4_0" else self._scales[:, 1:].astype(np.float64)
            values = scale * q + least
        return values.astype(np.float32).reshape(self.shape)


class Layers:
    """A table, two layers that are merged into one, and a head that is the table again."""

    def __init__(self, form: str) -> None:
        self.table = BlockArray(form, WORDS, WIDTH, 1)
        self.up = BlockArray(form, HIDDEN, WIDTH, 2)
        self.gate = BlockArray(form, WIDTH, WIDTH, 3)

    def policy(self, rows: int, cache: FoldCache) -> CompiledPolicy:
        b = Builder()
        table = b.constant("table", self.table)
        x = b.embedding(table, b.input("ids", (rows,), DType.I32, Lifetime.QUERY), name="x")
        with b.block("layer"):
            up = b.linear(x, b.constant("up", self.up), name="up.y")
            gate = b.linear(x, b.constant("gate", self.gate), name="gate.y")
        b.output("x", x)
        b.output("up", up)
        b.output("head", b.linear(gate, table, name="head"))
        return compile_graph(b.graph(), cache)


def run(executor: SimdExecutor, policy: CompiledPolicy, ids: Array) -> dict[str, Array]:
    return executor.load(policy).run(Lifetime.QUERY, {"ids": ids})


@pytest.mark.parametrize("form", BLOCK_BYTES)
@pytest.mark.parametrize("isa", _engine.available_isas())
def test_results_are_those_of_the_values_in_any_pass(form: str, isa: str) -> None:
    layers, cache = Layers(form), FoldCache()
    ids = np.random.default_rng(0).integers(0, WORDS, 40).astype(np.int32)
    wide = run(SimdExecutor(threads=1, isa=isa, weight_storage="float32"), layers.policy(40, cache), ids)

    np.testing.assert_array_equal(wide["x"], layers.table.array()[ids])
    for threads in (1, 3):
        executor = SimdExecutor(threads=threads, isa=isa, parallel_cutoff=0)
        for rows in (1, 2, 5, 40):
            got = run(executor, layers.policy(rows, cache), ids[:rows])
            for name, value in got.items():
                assert value.tobytes() == wide[name][:rows].tobytes(), (threads, rows, name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("isa", _engine.available_isas())
def test_other_weights_give_a_row_the_same_result_in_any_pass_too(dtype: str, isa: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(70, 600)).astype(np.float32)
    if dtype == "bfloat16":
        weight = (weight.view(np.uint32) & 0xFFFF0000).view(np.float32)
    x = rng.normal(size=(64, 600)).astype(np.float32)
    executor = SimdExecutor(threads=2, isa=isa, parallel_cutoff=0)

    def product(rows: int) -> Array:
        b = Builder()
        source = b.input("x", (rows, 600), DType.F32, Lifetime.QUERY)
        b.output("y", b.linear(source, b.constant("w", weight), name="layer"))
        loaded = executor.load(compile_graph(b.graph(), FoldCache()))
        assert executor.weight_bytes[dtype] > 0
        return loaded.run(Lifetime.QUERY, {"x": x[:rows]})["y"]

    whole = product(64)
    for rows in (1, 2, 7, 16, 33):
        assert product(rows).tobytes() == whole[:rows].tobytes()


@pytest.mark.parametrize("form", BLOCK_BYTES)
def test_blocks_are_kept_once_and_in_as_many_bytes(form: str) -> None:
    layers, cache = Layers(form), FoldCache()
    executor = SimdExecutor(threads=1, isa="portable")
    loaded = [executor.load(layers.policy(rows, cache)) for rows in (1, 4)]

    columns = _engine.Engine(threads=1, isa="portable").tile[1]
    rows = sum(-(-count // columns) * columns for count in (WORDS, HIDDEN + WIDTH))
    assert executor.weight_bytes[form] == rows * WIDTH // 32 * BLOCK_BYTES[form]
    assert executor.weight_bytes["float32"] == 0
    times = loaded[0].profile(Lifetime.QUERY, {"ids": np.zeros(1, np.int32)}, 1)
    assert {record.kernel for record in times} == {f"linear_{form}_portable", f"embedding_{form}_portable"}


def test_bytes_that_are_no_blocks_are_refused() -> None:
    engine = _engine.Engine(threads=1)
    with pytest.raises(ValueError, match="got 72 bytes for 2x64, expected 80"):
        engine.pack_blocks("q4_1", np.zeros((2, 36), np.uint8), 64)
    with pytest.raises(
        ValueError, match="2x48, expected positive sizes below 2\\^31 and rows of whole blocks"
    ):
        engine.pack_blocks("q4_1", np.zeros((2, 30), np.uint8), 48)
    with pytest.raises(ValueError, match="unknown form 'q5_0', expected q8_0, q4_0 or q4_1"):
        engine.pack_blocks("q5_0", np.zeros((2, 30), np.uint8), 32)


def test_a_program_with_weights_of_another_size_is_refused() -> None:
    engine = _engine.Engine(threads=1)
    builder = _engine.ProgramBuilder(engine, _engine.Arena(4096))
    weights = engine.pack_blocks("q8_0", np.zeros((8, 34), np.uint8), 32)
    x, y = _engine.View(0, 1, 64, 64), _engine.View(1024, 1, 8, 8)
    with pytest.raises(_engine.ProgramError, match="'probe': weights are 8x32, expected 8x64"):
        builder.linear("probe", x, weights, y)
