from __future__ import annotations

import gc

import numpy as np

from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.lazy_array import MadeArray


def ones() -> MadeArray:
    return MadeArray((2,), np.float32, lambda: np.ones(2, np.float32))


def test_equal_structures_have_one_constant() -> None:
    cache = FoldCache()
    x, y = ones(), ones()
    values = {key: cache.get(key, ones) for key in (("add", x, y), ("add", y, x), ("mul", x, y))}
    assert len(set(values.values())) == 3
    assert all(cache.get(key, ones) is value for key, value in values.items())


def test_a_constant_is_remembered_as_long_as_something_holds_it() -> None:
    cache = FoldCache()
    held = cache.get("held", ones)
    cache.get("let go", ones)
    gc.collect()
    made = []

    def make() -> MadeArray:
        made.append(ones())
        return made[-1]

    assert cache.get("held", make) is held and made == []
    assert cache.get("let go", make) is made[0]
