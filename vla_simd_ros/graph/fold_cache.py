"""What has been folded already, shared between compilations of one policy."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable

from vla_simd_ros.graph.lazy_array import LazyArray


class FoldCache:
    """Folded constants by structure: what is computed, from which constants, with which attributes.

    Compiling the same policy again, for an instruction of another length, finds its constants here as long
    as something holds them; they stay the same objects, by which an executor knows that it has packed them
    already.
    """

    def __init__(self) -> None:
        self._values: weakref.WeakValueDictionary[Hashable, LazyArray] = weakref.WeakValueDictionary()

    def get(self, structure: Hashable, make: Callable[[], LazyArray]) -> LazyArray:
        """The constant remembered for ``structure``, from ``make`` if there is none."""
        value = self._values.get(structure)
        if value is None:
            value = self._values[structure] = make()
        return value
