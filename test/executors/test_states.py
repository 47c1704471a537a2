"""States in every executor: what is appended stays, what is taken back is not seen, and how many rows a
program has changes no bit of what it computes of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from vla_simd_ros.executors.base import Executable, Executor, InputError
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.compile import compile_graph
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, KeyValueState, Lifetime

HEADS, KV_HEADS, HEAD = 6, 2, 12
WIDTH = KV_HEADS * HEAD


def torch_executor() -> Executor:
    pytest.importorskip("torch")
    from vla_simd_ros.executors.torch_executor import TorchExecutor

    return TorchExecutor()


@pytest.fixture(
    params=[
        pytest.param(ReferenceExecutor, id="reference"),
        pytest.param(partial(SimdExecutor, threads=2), id="simd"),
        pytest.param(torch_executor, id="torch", marks=pytest.mark.needs_torch),
    ]
)
def executor(request: pytest.FixtureRequest) -> Executor:
    make: Callable[[], Executor] = request.param
    return make()


class Tokens:
    """Random queries, keys and values of tokens, and programs that append and read them ``count`` at once."""

    def __init__(self, rows: int = 600, seed: int = 0) -> None:
        self.state = KeyValueState(rows, KV_HEADS, HEAD)
        rng = np.random.default_rng(seed)
        self.q = rng.normal(size=(rows, HEADS * HEAD)).astype(np.float32)
        self.keys, self.values = (rng.normal(size=(rows, WIDTH)).astype(np.float32) for _ in range(2))

    def load(self, executor: Executor, count: int, beside: Executable | None = None) -> Executable:
        b = Builder()
        kept = b.state("state", self.state)
        for name, lifetime in (("prefix", Lifetime.QUERY), ("token", Lifetime.STEP)):
            keys, values = (
                b.input(f"{name}.{part}", (count, WIDTH), DType.F32, lifetime) for part in ("keys", "values")
            )
            positions = b.input(f"{name}.positions", (count,), DType.I32, lifetime)
            kept = b.append(kept, keys, values, positions, name=f"{name}.append")
        q = b.input("token.q", (count, HEADS * HEAD), DType.F32, Lifetime.STEP)
        attrs = {"heads": HEADS, "kv_heads": KV_HEADS, "scale": 0.3}
        b.output("y", b.cached_attention(q, kept, positions, name="y", **attrs))
        return executor.load(compile_graph(b.graph(), FoldCache()), beside)

    def rows(self, name: str, first: int, count: int) -> dict[str, Array]:
        here = slice(first, first + count)
        return {
            f"{name}.keys": self.keys[here],
            f"{name}.values": self.values[here],
            f"{name}.positions": np.arange(first, first + count, dtype=np.int32),
        }

    def prefix(self, executable: Executable, first: int, count: int) -> None:
        executable.run(Lifetime.QUERY, self.rows("prefix", first, count))

    def step(self, executable: Executable, first: int, count: int) -> Array:
        inputs = self.rows("token", first, count) | {"token.q": self.q[first : first + count]}
        return executable.run(Lifetime.STEP, inputs)["y"]

    def expected(self, first: int, count: int) -> Array:
        """By definition, in float64."""
        result = np.empty((count, HEADS * HEAD))
        for i, h in np.ndindex(count, HEADS):
            columns = slice(h * HEAD, (h + 1) * HEAD)
            shared = slice(h // (HEADS // KV_HEADS) * HEAD, (h // (HEADS // KV_HEADS) + 1) * HEAD)
            keys, values = (x[: first + i + 1, shared].astype(np.float64) for x in (self.keys, self.values))
            scores = 0.3 * keys @ self.q[first + i, columns]
            weights = np.exp(scores - scores.max())
            result[i, columns] = weights @ values / weights.sum()
        return result


def test_steps_go_on_from_the_prefix(executor: Executor) -> None:
    tokens = Tokens(rows=20)
    executable = tokens.load(executor, 4)
    tokens.prefix(executable, 0, 4)
    for first in (4, 8, 12):
        np.testing.assert_allclose(tokens.step(executable, first, 4), tokens.expected(first, 4), atol=2e-6)
    tokens.prefix(executable, 0, 4)  # another query: what its steps appended is gone with it
    np.testing.assert_allclose(tokens.step(executable, 4, 4), tokens.expected(4, 4), atol=2e-6)


@pytest.mark.parametrize("poison", [np.nan, 1e30])
def test_rows_that_were_taken_back_are_not_seen(executor: Executor, poison: float) -> None:
    tokens, guesses = Tokens(rows=20), Tokens(rows=20, seed=1)
    guesses.state = tokens.state
    guesses.keys[:], guesses.values[:] = poison, poison
    executable = tokens.load(executor, 4)
    tokens.prefix(executable, 0, 4)
    expected = tokens.step(executable, 4, 4)
    guesses.step(executable, 8, 4)
    guesses.step(executable, 4, 4)
    np.testing.assert_array_equal(tokens.step(executable, 4, 4), expected)


def test_programs_of_different_sizes_share_a_state(executor: Executor) -> None:
    tokens = Tokens(rows=20)
    many = tokens.load(executor, 5)
    one = tokens.load(executor, 1, beside=many)
    tokens.prefix(many, 0, 5)
    np.testing.assert_allclose(tokens.step(one, 5, 1), tokens.expected(5, 1), atol=2e-6)
    np.testing.assert_allclose(tokens.step(many, 6, 5), tokens.expected(6, 5), atol=2e-6)
    np.testing.assert_allclose(tokens.step(one, 11, 1), tokens.expected(11, 1), atol=2e-6)


def test_another_state_is_another_memory(executor: Executor) -> None:
    tokens, others = Tokens(rows=10), Tokens(rows=10, seed=1)
    mine, theirs = tokens.load(executor, 2), others.load(executor, 2)
    tokens.prefix(mine, 0, 2)
    others.prefix(theirs, 0, 2)
    np.testing.assert_allclose(tokens.step(mine, 2, 2), tokens.expected(2, 2), atol=2e-6)


@pytest.mark.parametrize("positions", [[3, 10], [-1, 0], [4, 4], [5, 4]])
def test_positions_are_checked(executor: Executor, positions: list[int]) -> None:
    tokens = Tokens(rows=10)
    executable = tokens.load(executor, 2)
    inputs = tokens.rows("prefix", 0, 2) | {"prefix.positions": np.array(positions, np.int32)}
    with pytest.raises(InputError, match=r"QUERY: .*prefix\.append.*position"):
        executable.run(Lifetime.QUERY, inputs)


@pytest.mark.parametrize("threads", [1, 2])
def test_no_bit_depends_on_how_many_rows_a_pass_has(threads: int) -> None:
    tokens = Tokens(rows=600)
    executor = SimdExecutor(threads=threads)
    # The first block of keys ends among the rows that follow.
    tokens.prefix(tokens.load(executor, 230), 0, 230)
    one = tokens.load(executor, 1)
    expected = np.concatenate([tokens.step(one, 230 + i, 1) for i in range(64)])
    np.testing.assert_allclose(expected, tokens.expected(230, 64), atol=2e-6)
    for count in (2, 3, 8, 21, 33, 64):
        np.testing.assert_array_equal(tokens.step(tokens.load(executor, count), 230, count), expected[:count])
