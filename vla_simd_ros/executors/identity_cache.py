"""Values derived from constants, shared by all that an executor loads."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from vla_simd_ros.graph.ir import LazyArray

T = TypeVar("T")


class IdentityCache(Generic[T]):
    """Values derived from constants, kept for as long as every constant they were derived from exists."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, ...], T] = {}
        self._watched: dict[tuple[int, ...], list[weakref.ref[LazyArray]]] = {}

    def get(self, arrays: tuple[LazyArray, ...], make: Callable[[], T]) -> T:
        """The value for these very constants, from ``make`` the first time."""
        key = tuple(id(array) for array in arrays)
        if key not in self._values:
            self._values[key] = make()
            self._watched[key] = [weakref.ref(array, lambda _: self._forget(key)) for array in arrays]
        return self._values[key]

    def _forget(self, key: tuple[int, ...]) -> None:
        self._values.pop(key, None)
        self._watched.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values.values())
