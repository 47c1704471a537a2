"""Arrays that are made when they are asked for, so that a policy's weights need not all be in memory at once.

A constant of a graph is a :class:`LazyArray`. Whoever computes with it asks for the array, turns it into what
it needs, and lets go of it.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.graph.blocks import Blocks

Array = npt.NDArray[Any]
Exact = dict["LazyArray", Array]


class LazyArray(ABC):
    """An array of known shape and type that never changes. Identity tells two of them apart."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.shape = shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._last: weakref.ref[Array] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the array when it is made."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def array(self) -> Array:
        """The values, C-contiguous, not to be written to; the same array again while somebody holds it."""
        held = None if self._last is None else self._last()
        if held is None:
            held = np.asarray(self._make(), order="C")
            self._last = weakref.ref(held)
        return held

    def rows(self, start: int, stop: int) -> Array:
        """The values of some rows, for which the others need not be made."""
        return self.array()[start:stop]

    def mapped(self) -> Array:
        """The values where they are stored, if that can be: for a table of which few rows are read."""
        return self.array()

    @property
    def block_form(self) -> str | None:
        """The format of :meth:`blocks`, if there are any."""
        return None

    def blocks(self) -> Blocks | None:
        """The values in blocks of few bits, where they are kept in such."""
        return None

    def exact(self, known: Exact) -> Array:
        """The values before they are rounded to their type; ``known`` remembers those of one computation."""
        return self.array()

    def whole(self) -> tuple[LazyArray, int]:
        """The array that this one is rows of, worth keeping in its stead, and the first of these rows."""
        return self, 0

    @abstractmethod
    def _make(self) -> Array:
        """The values."""


class MadeArray(LazyArray):
    """What a function makes."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, make: Callable[[], Array]) -> None:
        super().__init__(shape, dtype)
        self._function = make

    def _make(self) -> Array:
        return self._function()


_GIVEN: weakref.WeakValueDictionary[int, LazyArray] = weakref.WeakValueDictionary()


def given(value: Array) -> LazyArray:
    """``value`` itself, which stays in memory; the same LazyArray for the same array object."""
    known = _GIVEN.get(id(value))
    if known is None:
        # It holds the array, whose identity is therefore its own for as long as the entry exists.
        known = _GIVEN[id(value)] = MadeArray(value.shape, value.dtype, lambda: value)
    return known
