from __future__ import annotations

import gc
import weakref

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.ir import Array, DType, Graph, LazyArray, Lifetime, Tensor
from vla_simd_ros.graph.lazy_array import MadeArray, given
from vla_simd_ros.graph.passes.fold_constants import fold_constants

RNG = np.random.default_rng(0)
A, B = (RNG.normal(size=(8, 8)).astype(np.float32) for _ in range(2))
WHOLE = RNG.normal(size=(9, 4)).astype(np.float32)


def added(b: Builder, folded: Tensor, name: str = "y") -> None:
    """Make a runtime operation read ``folded``."""
    x = b.input(f"{name}.x", folded.shape, DType.F32, Lifetime.QUERY)
    b.output(name, b.add(x, folded, name=name))


def folded_constant(graph: Graph, name: str = "y") -> LazyArray:
    value = graph.producers()[graph.outputs[name]].inputs[1]
    assert value is not None
    return graph.constants[value]


def folded_value(graph: Graph, name: str = "y") -> Array:
    return folded_constant(graph, name).array()


def chain(b: Builder) -> Tensor:
    product = b.linear(b.constant("a", A), b.constant("b", B), name="product")
    return b.linear(product, b.constant("b", B), name="square")


def test_chains_are_rounded_once_at_the_end() -> None:
    b = Builder()
    added(b, chain(b))
    graph = fold_constants(b.graph(), FoldCache())
    assert [op.kind for op in graph.ops] == ["binary"]
    exact = A.astype(np.float64) @ B.T.astype(np.float64) @ B.T.astype(np.float64)
    np.testing.assert_array_equal(folded_value(graph), exact.astype(np.float32))


def test_a_value_that_is_read_is_rounded_without_rounding_the_chain() -> None:
    b = Builder()
    product = b.linear(b.constant("a", A), b.constant("b", B), name="product")
    added(b, product, "first")
    added(b, b.linear(product, b.constant("b", B), name="square"), "second")
    graph = fold_constants(b.graph(), FoldCache())
    exact = A.astype(np.float64) @ B.T.astype(np.float64)
    np.testing.assert_array_equal(folded_value(graph, "first"), exact.astype(np.float32))
    squared = exact @ B.T.astype(np.float64)
    np.testing.assert_array_equal(folded_value(graph, "second"), squared.astype(np.float32))


def test_the_same_structure_gives_the_same_constant_again() -> None:
    cache = FoldCache()
    values = []
    for _ in range(2):
        b = Builder()
        added(b, chain(b))
        values.append(folded_constant(fold_constants(b.graph(), cache)))
    assert values[0] is values[1]


def test_a_constant_nobody_holds_is_forgotten() -> None:
    cache = FoldCache()
    b = Builder()
    added(b, chain(b))
    value = weakref.ref(folded_constant(fold_constants(b.graph(), cache)))
    gc.collect()
    assert value() is None


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    asked = []

    def make() -> Array:
        asked.append(1)
        return A

    b = Builder()
    lazy = MadeArray(A.shape, A.dtype, make)
    added(b, b.linear(b.constant("lazy", lazy), b.constant("b", B), name="product"))
    graph = fold_constants(b.graph(), FoldCache())
    assert asked == []
    np.testing.assert_array_equal(folded_value(graph), (A.astype(np.float64) @ B.T).astype(np.float32))
    assert asked == [1]


def test_rows_of_a_stored_array_are_read_alone() -> None:
    class Stored(MadeArray):
        def rows(self, start: int, stop: int) -> Array:
            read.append((start, stop))
            return WHOLE[start:stop]

    read: list[tuple[int, int]] = []
    b = Builder()
    whole = b.constant("whole", Stored(WHOLE.shape, WHOLE.dtype, lambda: WHOLE))
    half = b.slice(whole, axis=0, start=2, stop=8, name="half")
    added(b, b.slice(half, axis=0, start=1, stop=3, name="rows"))
    np.testing.assert_array_equal(folded_value(fold_constants(b.graph(), FoldCache())), WHOLE[3:5])
    assert read == [(3, 5)]


def test_many_rows_are_kept_as_part_of_the_whole_and_few_by_themselves() -> None:
    for stop, first in ((8, 2), (6, None)):
        b = Builder()
        added(b, b.slice(b.constant("whole", WHOLE), axis=0, start=2, stop=stop, name="rows"))
        value = folded_constant(fold_constants(b.graph(), FoldCache()))
        expected = (value, 0) if first is None else (given(WHOLE), first)
        assert value.whole() == expected


def test_rows_of_a_result_are_exact_in_what_is_computed_from_them() -> None:
    b = Builder()
    rows = b.slice(chain(b), axis=0, start=1, stop=4, name="rows")
    added(b, b.linear(rows, b.constant("b", B), name="cube"))
    exact = A.astype(np.float64) @ B.T @ B.T.astype(np.float64) @ B.T
    value = folded_value(fold_constants(b.graph(), FoldCache()))
    np.testing.assert_array_equal(value, exact[1:4].astype(np.float32))


def test_other_attributes_give_another_value() -> None:
    cache = FoldCache()
    values = []
    for stop in (1, 2):
        b = Builder()
        rows = b.slice(chain(b), axis=0, start=0, stop=stop, name="rows")
        added(b, rows)
        values.append(folded_value(fold_constants(b.graph(), cache)))
    assert [value.shape for value in values] == [(1, 8), (2, 8)]


def test_parts_of_one_array_put_together_again_are_not_copied() -> None:
    b = Builder()
    whole = b.constant("whole", WHOLE)
    parts = [b.slice(whole, axis=0, start=3 * i, stop=3 * (i + 1), name=f"part{i}") for i in range(3)]
    added(b, b.concat(parts, axis=0, name="joined"))
    value = folded_value(fold_constants(b.graph(), FoldCache()))
    assert np.shares_memory(value, WHOLE)
    np.testing.assert_array_equal(value, WHOLE)


def test_parts_in_another_order_or_of_other_arrays_are_copied() -> None:
    for order in ((1, 0), (0, 2)):
        b = Builder()
        whole = b.constant("whole", WHOLE)
        parts = [b.slice(whole, axis=0, start=3 * i, stop=3 * (i + 1), name=f"p{i}") for i in order]
        added(b, b.concat(parts, axis=0, name="joined"))
        value = folded_value(fold_constants(b.graph(), FoldCache()))
        np.testing.assert_array_equal(value, np.concatenate([WHOLE[3 * i : 3 * i + 3] for i in order]))


def test_results_are_contiguous_and_of_their_own_type() -> None:
    b = Builder()
    ids = b.constant("ids", np.arange(6, dtype=np.int32))
    table = b.constant("table", WHOLE)
    chosen = b.slice(ids, axis=0, start=2, stop=4, name="chosen")
    b.output("chosen", chosen)
    added(b, b.slice(table, axis=1, start=1, stop=3, name="columns"))
    added(b, b.embedding(table, chosen, name="looked_up"), "rows")
    graph = fold_constants(b.graph(), FoldCache())
    for tensor, lazy in graph.constants.items():
        value = lazy.array()
        assert value.flags.c_contiguous
        assert value.dtype == tensor.dtype.numpy
    np.testing.assert_array_equal(graph.constants[graph.outputs["chosen"]].array(), [2, 3])
    np.testing.assert_array_equal(folded_value(graph, "rows"), WHOLE[2:4])
