from __future__ import annotations

import gc

import numpy as np

from vla_simd_ros.graph.fold_cache import FoldCache


def test_equal_structures_have_one_number() -> None:
    cache = FoldCache()
    x, y = np.ones(2), np.ones(2)
    assert cache.array_key(x) == cache.array_key(x) != cache.array_key(y)
    assert cache.number(("add", 1, 2)) == cache.number(("add", 1, 2)) != cache.number(("add", 2, 1))


def test_an_array_is_kept_alive_so_that_its_key_stays_its_own() -> None:
    cache = FoldCache()
    keys = {cache.array_key(np.full(3, i)) for i in range(100)}
    assert len(keys) == 100


def test_values_are_computed_once_and_made_contiguous() -> None:
    cache = FoldCache()
    calls = []
    matrix = np.arange(6).reshape(2, 3)

    def compute() -> np.ndarray:
        calls.append(1)
        return matrix.T

    first, second = cache.get("transposed", compute), cache.get("transposed", compute)
    assert first is second and len(calls) == 1
    assert first.flags.c_contiguous
    np.testing.assert_array_equal(first, matrix.T)


def test_contiguous_arrays_are_not_copied() -> None:
    cache = FoldCache()
    x = np.ones((2, 3))
    assert cache.contiguous(x) is x
    view = x.T
    assert cache.contiguous(view) is cache.contiguous(view)


def test_what_was_only_put_together_is_forgotten_when_nobody_holds_it() -> None:
    cache = FoldCache()
    held = cache.store(1, np.ones(3), keep=False)
    cache.store(2, np.ones(3), keep=False)
    cache.store(3, np.ones(3))
    gc.collect()
    assert cache.find(1) is held
    assert cache.find(2) is None
    assert cache.find(3) is not None
