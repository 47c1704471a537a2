"""What has been folded already, shared between compilations of one policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from vla_simd_ros.graph.ir import Array


class FoldCache:
    """Folded constants by structure: what was computed, from which arrays, with which attributes.

    Compiling the same policy again, for an instruction of another length, finds its constants here; the
    array objects stay the same, by which an executor knows that it has packed them already. Arrays given
    to :meth:`array_key` are kept alive, and must not change.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, Array] = {}
        self._numbers: dict[Hashable, int] = {}
        self._values: dict[int, Array] = {}

    def number(self, structure: Hashable) -> int:
        """A number for ``structure``, the same whenever the structure is equal."""
        return self._numbers.setdefault(structure, len(self._numbers))

    def array_key(self, value: Array) -> int:
        """The key of a given array: its identity."""
        self._arrays[id(value)] = value
        return self.number(("array", id(value)))

    def __contains__(self, key: int) -> bool:
        return key in self._values

    def __getitem__(self, key: int) -> Array:
        return self._values[key]

    def store(self, key: int, value: Array) -> Array:
        """Remember ``value``, made contiguous, and return it as it is remembered."""
        self._values[key] = np.ascontiguousarray(value)
        return self._values[key]

    def get(self, structure: Hashable, compute: Callable[[], Array]) -> Array:
        """The value remembered for ``structure``, computed if this is the first time."""
        key = self.number(structure)
        return self._values[key] if key in self._values else self.store(key, compute())

    def contiguous(self, value: Array) -> Array:
        """``value`` itself if it is C-contiguous, else the one copy that is."""
        if value.flags.c_contiguous:
            return value
        return self.get(("contiguous", self.array_key(value)), lambda: value)
