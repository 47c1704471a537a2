"""The engine's constants: made once, gone with what they were made from."""

from __future__ import annotations

import weakref
from functools import partial

import numpy as np
import pytest

from vla_simd_ros import _engine
from vla_simd_ros.executors.simd_constants import BORROWED_BYTES, EngineConstants, pixel_table
from vla_simd_ros.graph.ir import Array, LazyArray
from vla_simd_ros.graph.lazy_array import MadeArray


def zeros(*shape: int) -> MadeArray:
    return MadeArray(shape, np.float32, lambda: np.zeros(shape, np.float32))


def test_large_tables_are_used_where_they_are_and_small_ones_copied() -> None:
    class Table(MadeArray):
        def mapped(self) -> Array:
            mapped.append(self.nbytes)
            return self.array()

    mapped: list[int] = []
    constants = EngineConstants(_engine.Engine(1))
    for count in (4, BORROWED_BYTES // 4):
        table = Table((count,), np.float32, partial(np.zeros, count, np.float32))
        constant, offset = constants.plain(table)
        assert (constant.bytes, offset) == (4 * count, 0)
        assert constants.plain(table)[0] is constant
    assert mapped == [BORROWED_BYTES]


def test_rows_are_an_offset_into_the_whole() -> None:
    class Rows(MadeArray):
        def whole(self) -> tuple[LazyArray, int]:
            return whole, 2

    whole = zeros(5, 3)
    constants = EngineConstants(_engine.Engine(1))
    constant, offset = constants.plain(Rows((3, 3), np.float32, lambda: np.zeros((3, 3), np.float32)))
    assert (constant.bytes, offset) == (5 * 3 * 4, 2 * 3 * 4)
    assert constants.plain(whole) == (constant, 0)


def test_filters_are_packed_as_matrices_and_let_go_of() -> None:
    made: list[weakref.ref[Array]] = []

    def make() -> Array:
        weight = np.zeros((5, 3, 2, 4), np.float32)
        made.append(weakref.ref(weight))
        return weight

    constants = EngineConstants(_engine.Engine(1))
    weight = MadeArray((5, 3, 2, 4), np.float32, make)
    packed = constants.packed(weight)
    assert (packed.n, packed.k) == (5, 24)
    assert packed.isa in _engine.available_isas()
    assert constants.packed(weight) is packed
    assert [ref() for ref in made] == [None]


def test_the_pixel_table_is_float32_arithmetic() -> None:
    offset, divisor = np.array([0.3], np.float32), np.array([0.7], np.float32)
    table = pixel_table(offset, divisor)
    assert table.dtype == np.float32
    for pixel in range(256):
        assert table[0, pixel] == (np.float32(pixel) / np.float32(255) - offset[0]) / divisor[0]


def exact_and_lossy() -> tuple[MadeArray, MadeArray]:
    bits = np.arange(64 * 48, dtype=np.float32).reshape(64, 48).view(np.uint32) & np.uint32(0xFFFF0000)
    exact = bits.view(np.float32)
    one_off = exact.copy()
    one_off[63, 47] = np.nextafter(exact[63, 47], np.float32(1e9))
    return (
        MadeArray(exact.shape, np.float32, lambda: exact),
        MadeArray(exact.shape, np.float32, lambda: one_off),
    )


@pytest.mark.parametrize("row_by_row", [False, True])
def test_bfloat16_values_are_kept_in_half_the_memory_where_that_is_asked_for(row_by_row: bool) -> None:
    engine = _engine.Engine(threads=1)
    plain, halving = EngineConstants(engine), EngineConstants(engine, as_stored=True)
    weight, lossy = exact_and_lossy()
    expanded = plain.packed(weight, row_by_row=row_by_row)
    kept = halving.packed(weight, row_by_row=row_by_row)
    assert (expanded.bf16, kept.bf16) == (False, True)
    assert expanded.rows == kept.rows == row_by_row
    assert kept.bytes * 2 == expanded.bytes
    assert not halving.packed(lossy, row_by_row=row_by_row).bf16


def test_the_memory_of_weights_is_told_by_type() -> None:
    constants = EngineConstants(_engine.Engine(threads=1), as_stored=True)
    exact, lossy = exact_and_lossy()
    packed = constants.packed(exact), constants.packed(lossy), constants.int8(exact, 1)
    told = constants.weight_bytes()
    assert told == {"bfloat16": packed[0].bytes, "float32": packed[1].bytes, "int8": packed[2].bytes}
    assert told["bfloat16"] * 2 == told["float32"] > told["int8"] > 0


def test_filters_for_winograds_method_are_not_kept_in_bfloat16() -> None:
    packed = _engine.Engine(threads=1).pack(np.ones((16, 72), np.float32), 2, bf16_where_exact=True)
    assert (packed.winograd_side, packed.bf16) == (2, False)
