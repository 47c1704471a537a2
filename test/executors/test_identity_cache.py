from __future__ import annotations

import gc

import numpy as np

from vla_simd_ros.executors.identity_cache import IdentityCache
from vla_simd_ros.graph.lazy_array import MadeArray


def zeros(*shape: int) -> MadeArray:
    return MadeArray(shape, np.float32, lambda: np.zeros(shape, np.float32))


def test_values_are_made_once_per_constant() -> None:
    cache: IdentityCache[int] = IdentityCache()
    one, two = zeros(3), zeros(3)
    assert cache.get((one,), lambda: 1) == 1
    assert cache.get((one,), lambda: 2) == 1
    assert cache.get((two,), lambda: 3) == 3
    assert cache.get((one, two), lambda: 4) == 4
    assert len(cache) == 3


def test_values_go_with_their_constants() -> None:
    cache: IdentityCache[int] = IdentityCache()
    one, two = zeros(3), zeros(3)
    cache.get((one, two), lambda: 1)
    cache.get((two,), lambda: 2)
    del one
    gc.collect()
    assert len(cache) == 1
    assert cache.get((two,), lambda: 3) == 2
