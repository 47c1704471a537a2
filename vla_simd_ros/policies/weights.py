"""A checkpoint's weights as constants of a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor


class TensorSource(Protocol):
    """Where weights come from: a checkpoint, or the file of a text encoder."""

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """Float tensor ``name`` as float32; raises CheckpointError if missing or not of ``shape``."""
        ...


class Weights:
    """Weights under one prefix of names, and the arrays made from them.

    Whatever is handed out is kept, so that every graph built from one checkpoint gets the same array
    objects: by them, constants that are folded and packed already are recognized.
    """

    def __init__(self, source: TensorSource, prefix: str = "") -> None:
        self._source = source
        self._prefix = prefix
        self._made: dict[Hashable, Array] = {}

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """The stored tensor; ``shape`` is checked where given."""
        return self.made(("stored", name, shape), lambda: self._source.tensor(self._prefix + name, shape))

    def constant(self, b: Builder, name: str, *shape: int) -> Tensor:
        """The stored tensor of the given shape in a graph."""
        return b.constant(self._prefix + name, self.array(name, shape))

    def filters(self, b: Builder, name: str, outputs: int, inputs: int, kernel: int) -> Tensor:
        """A convolution's filters, stored [outputs, inputs, kh, kw], as [outputs, kh, kw, inputs]."""
        stored = self.array(name, (outputs, inputs, kernel, kernel))
        return b.constant(
            self._prefix + name, self.made((name, "nhwc"), lambda: stored.transpose(0, 2, 3, 1))
        )

    def made(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """An array that is made once under ``key`` and then the same."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def zeros(self, b: Builder, name: str, *shape: int) -> Tensor:
        """Zeros in a graph."""
        return b.constant(name, self.made(("zeros", shape), lambda: np.zeros(shape, np.float32)))
