"""What has been folded already, shared between compilations of one policy."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable

import numpy as np

from vla_simd_ros.graph.ir import Array


class FoldCache:
    """Folded constants by structure: what was computed, from which arrays, with which attributes.

    Compiling the same policy again, for an instruction of another length, finds its constants here; the
    array objects stay the same, by which an executor knows that it has packed them already. What was
    computed is kept for good; what was only put together from other values is remembered as long as
    something else holds it, so that policies compiled for many lengths do not pile up. Arrays given to
    :meth:`array_key` are kept alive, and must not change.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, Array] = {}
        self._numbers: dict[Hashable, int] = {}
        self._kept: dict[int, Array] = {}
        self._held_elsewhere: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()

    def number(self, structure: Hashable) -> int:
        """A number for ``structure``, the same whenever the structure is equal."""
        return self._numbers.setdefault(structure, len(self._numbers))

    def array_key(self, value: Array) -> int:
        """The key of a given array: its identity."""
        self._arrays[id(value)] = value
        return self.number(("array", id(value)))

    def find(self, key: int) -> Array | None:
        """The value remembered under ``key``, if any."""
        value = self._kept.get(key)
        return self._held_elsewhere.get(key) if value is None else value

    def store(self, key: int, value: Array, *, keep: bool = True) -> Array:
        """Remember ``value``, made contiguous, and return it as it is remembered."""
        value = np.ascontiguousarray(value)
        (self._kept if keep else self._held_elsewhere)[key] = value
        return value

    def get(self, structure: Hashable, compute: Callable[[], Array]) -> Array:
        """The value remembered for ``structure``, computed and kept if this is the first time."""
        key = self.number(structure)
        value = self.find(key)
        return self.store(key, compute()) if value is None else value

    def contiguous(self, value: Array) -> Array:
        """``value`` itself if it is C-contiguous, else the one copy that is."""
        if value.flags.c_contiguous:
            return value
        return self.get(("contiguous", self.array_key(value)), lambda: value)
