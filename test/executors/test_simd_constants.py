"""Constants: made once per array, gone with it."""

from __future__ import annotations

import gc

import numpy as np

from vla_simd_ros import _engine
from vla_simd_ros.executors.simd_constants import BORROWED_BYTES, EngineConstants, IdentityCache, pixel_table


def test_values_are_made_once_per_array() -> None:
    cache: IdentityCache[int] = IdentityCache()
    one, two = np.zeros(3), np.zeros(3)
    assert cache.get((one,), lambda: 1) == 1
    assert cache.get((one,), lambda: 2) == 1
    assert cache.get((two,), lambda: 3) == 3
    assert cache.get((one, two), lambda: 4) == 4
    assert len(cache) == 3


def test_values_go_with_their_arrays() -> None:
    cache: IdentityCache[int] = IdentityCache()
    one, two = np.zeros(3), np.zeros(3)
    cache.get((one, two), lambda: 1)
    cache.get((two,), lambda: 2)
    del one
    gc.collect()
    assert len(cache) == 1
    assert cache.get((two,), lambda: 3) == 2


def test_large_arrays_are_borrowed_and_small_ones_copied() -> None:
    constants = EngineConstants(_engine.Engine(1))
    small, large = np.zeros(4, np.float32), np.zeros(BORROWED_BYTES // 4, np.float32)
    assert constants.plain(small).bytes == 16
    assert constants.plain(small) is constants.plain(small)
    assert constants.plain(large).bytes == BORROWED_BYTES
    strided = np.zeros((4, 6), np.float32)[:, ::2]
    assert constants.plain(strided).bytes == 48


def test_filters_are_packed_as_matrices() -> None:
    constants = EngineConstants(_engine.Engine(1))
    weight = np.zeros((5, 3, 2, 4), np.float32)
    packed = constants.packed(weight)
    assert (packed.n, packed.k) == (5, 24)
    assert packed.isa in _engine.available_isas()


def test_the_pixel_table_is_float32_arithmetic() -> None:
    offset, divisor = np.array([0.3], np.float32), np.array([0.7], np.float32)
    table = pixel_table(offset, divisor)
    assert table.dtype == np.float32
    for pixel in range(256):
        assert table[0, pixel] == (np.float32(pixel) / np.float32(255) - offset[0]) / divisor[0]
