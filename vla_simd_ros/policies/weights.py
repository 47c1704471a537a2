"""A checkpoint's weights as constants of a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from vla_simd_ros.graph.blocks import Blocks
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, LazyArray, Tensor
from vla_simd_ros.graph.lazy_array import MadeArray

T = TypeVar("T")


class TensorSource(Protocol):
    """Where weights come from: a checkpoint, or the file of a text encoder. All raise CheckpointError."""

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The shape of float tensor ``name``, checked; its values are not read."""
        ...

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """Float tensor ``name`` as float32, checked to have ``shape`` (when given)."""
        ...

    def rows(self, name: str, start: int, stop: int) -> Array:
        """Some rows of float tensor ``name`` as float32."""
        ...

    def mapped(self, name: str) -> Array:
        """Float tensor ``name`` as float32, in the mapped file where it is stored as such."""
        ...

    def check_mapped(self) -> None:
        """Check that the mapped file has not changed."""
        ...


@runtime_checkable
class BlockSource(TensorSource, Protocol):
    """A source that keeps some tensors in blocks of few bits."""

    def block_form(self, name: str) -> str | None:
        """The format of :meth:`blocks`, if there are any."""
        ...

    def blocks(self, name: str) -> Blocks | None:
        """Tensor ``name`` in blocks, where it is stored in such."""
        ...


class StoredArray(LazyArray):
    """A stored tensor, read when it is asked for."""

    def __init__(self, source: TensorSource, name: str, shape: tuple[int, ...]) -> None:
        super().__init__(shape, np.float32)
        self._source = source
        self._name = name

    def rows(self, start: int, stop: int) -> Array:
        return self._source.rows(self._name, start, stop)

    def mapped(self) -> Array:
        return self._source.mapped(self._name)

    def _make(self) -> Array:
        return self._source.tensor(self._name)


class StoredBlocks(StoredArray):
    """A tensor of a source that keeps some in blocks."""

    def __init__(self, source: BlockSource, name: str, shape: tuple[int, ...]) -> None:
        super().__init__(source, name, shape)
        self._blocks = source

    @property
    def block_form(self) -> str | None:
        return self._blocks.block_form(self._name)

    def blocks(self) -> Blocks | None:
        return self._blocks.blocks(self._name)


class Weights:
    """Weights under one prefix of names, and what is made from them.

    Whatever is handed out is kept, so that every graph built from one checkpoint gets the same objects: by
    them, constants that are folded and packed already are recognized.
    """

    def __init__(self, source: TensorSource, prefix: str = "") -> None:
        self._source = source
        self.prefix = prefix
        """What the names of these weights begin with in the checkpoint."""
        self._lazy: dict[Hashable, LazyArray] = {}
        self._arrays: dict[Hashable, Array] = {}

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The stored tensor's shape; ``expected`` is checked where given."""
        return self._source.shape(self.prefix + name, expected)

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """The values of a small stored tensor, which stay in memory; ``shape`` is checked where given."""
        return self.made(("stored", name, shape), lambda: self._source.tensor(self.prefix + name, shape))

    def constant(self, b: Builder, name: str, *shape: int) -> Tensor:
        """The stored tensor of the given shape in a graph."""
        return b.constant(self.prefix + name, self._stored(name, shape))

    def filters(
        self,
        b: Builder,
        name: str,
        outputs: int,
        inputs: int,
        kernel: int,
        change: Callable[[Array], Array] | None = None,
    ) -> Tensor:
        """A convolution's filters, stored [outputs, inputs, kh, kw], as [outputs, kh, kw, inputs].

        ``change`` is applied to these; the same function gives the same constant.
        """
        stored = self._stored(name, (outputs, inputs, kernel, kernel))

        def made() -> Array:
            channels_last = stored.array().transpose(0, 2, 3, 1)
            return channels_last if change is None else change(channels_last)

        def lazy() -> LazyArray:
            return MadeArray((outputs, kernel, kernel, inputs), np.float32, made)

        full_name = self.prefix + name if change is None else f"{self.prefix}{name}.{change.__name__}"
        return b.constant(full_name, _once(self._lazy, (name, "nhwc", change), lazy))

    def line_filters(self, b: Builder, name: str, outputs: int, inputs: int, kernel: int) -> Tensor:
        """Filters of a convolution along a line, stored [outputs, inputs, k], as [outputs, 1, k, inputs]."""
        stored = self._stored(name, (outputs, inputs, kernel))

        def channels_last() -> LazyArray:
            shape = outputs, 1, kernel, inputs
            return MadeArray(shape, np.float32, lambda: stored.array().transpose(0, 2, 1)[:, None])

        return b.constant(self.prefix + name, _once(self._lazy, (name, "line"), channels_last))

    def transposed_line_filters(
        self, b: Builder, name: str, channels: int, kernel: int, taps: tuple[int, ...]
    ) -> Tensor:
        """Taps of a transposed convolution, stored [inputs, outputs, k], as [outputs, 1, taps, inputs]."""
        stored = self._stored(name, (channels, channels, kernel))

        def chosen() -> LazyArray:
            shape = channels, 1, len(taps), channels
            return MadeArray(
                shape, np.float32, lambda: stored.array()[:, :, list(taps)].transpose(1, 2, 0)[:, None]
            )

        tensor_name = f"{self.prefix}{name}.{'+'.join(map(str, taps))}"
        return b.constant(tensor_name, _once(self._lazy, (name, taps), chosen))

    def repeated_row(self, b: Builder, name: str, row: int, count: int) -> Tensor:
        """One row of a stored table, ``count`` times, in a graph."""

        def repeated() -> Array:
            return self._source.rows(self.prefix + name, row, row + 1).repeat(count, axis=0)

        return b.constant(f"{self.prefix}{name}.{row}", self.made((name, row, count), repeated))

    def check_mapped(self) -> None:
        """Raise CheckpointError where the values of a mapped tensor have changed."""
        self._source.check_mapped()

    def made(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """A small array that is made once under ``key`` and then the same."""
        return _once(self._arrays, key, make)

    def zeros(self, b: Builder, name: str, *shape: int) -> Tensor:
        """Zeros in a graph."""
        return self.filled(b, name, 0.0, *shape)

    def filled(self, b: Builder, name: str, value: float, *shape: int) -> Tensor:
        """One value everywhere."""
        made = self.made(("filled", value, shape), lambda: np.full(shape, value, np.float32))
        return b.constant(name, made)

    def _stored(self, name: str, shape: tuple[int, ...]) -> LazyArray:
        full_name = self.prefix + name

        def stored() -> LazyArray:
            stored_shape = self._source.shape(full_name, shape)
            if isinstance(self._source, BlockSource):
                return StoredBlocks(self._source, full_name, stored_shape)
            return StoredArray(self._source, full_name, stored_shape)

        return _once(self._lazy, (name, shape), stored)


def _once(made: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
    if key not in made:
        made[key] = make()
    return made[key]
