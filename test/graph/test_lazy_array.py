from __future__ import annotations

import gc

import numpy as np

from vla_simd_ros.graph.ir import Array
from vla_simd_ros.graph.lazy_array import MadeArray, given

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Array:
        self.calls += 1
        return VALUES.T


def test_it_is_made_when_asked_for_and_not_kept() -> None:
    make = Counted()
    lazy = MadeArray((3, 2), np.float32, make)
    assert (lazy.shape, lazy.dtype, lazy.nbytes, make.calls) == ((3, 2), np.float32, 24, 0)
    held = lazy.array()
    assert lazy.array() is held and make.calls == 1
    assert held.flags.c_contiguous
    np.testing.assert_array_equal(held, VALUES.T)
    del held
    gc.collect()
    lazy.array()
    assert make.calls == 2


def test_rows_and_exact_values_follow_from_the_array() -> None:
    lazy = given(VALUES)
    np.testing.assert_array_equal(lazy.rows(1, 2), VALUES[1:])
    assert lazy.array() is lazy.mapped() is lazy.exact({})
    assert lazy.whole() == (lazy, 0)


def test_a_given_array_is_one_constant_as_long_as_it_is_used() -> None:
    other = VALUES.copy()
    lazy = given(VALUES)
    assert given(VALUES) is lazy is not given(other)
    assert lazy.array() is VALUES


def test_scalars_keep_their_shape() -> None:
    assert given(np.array(3, np.int32)).array().shape == ()
