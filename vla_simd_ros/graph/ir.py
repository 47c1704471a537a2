"""The intermediate representation of a policy: tensors, operations, and the graph that holds them.

Every tensor has a *lifetime* (how long its value stays valid) and a *block* (the part of the network
it belongs to). An operation's result lives as long as the shortest-lived of its inputs; that one rule
splits a policy into the process, episode, query and step programs.

Tensors are unbatched. Images are ``[height, width, channels]``; token sequences are ``[rows, width]``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vla_simd_ros.graph.lazy_array import Array, LazyArray

__all__ = ["Array", "DType", "Graph", "KeyValueState", "LazyArray", "Lifetime", "Op", "Tensor", "shortest"]


class Lifetime(enum.IntEnum):
    """How long a value stays valid; a larger number is a shorter life."""

    PROCESS = 0
    """Set when the checkpoint is loaded."""
    EPISODE = 1
    """Set with the instruction, or when the episode resets."""
    QUERY = 2
    """Set by an observation."""
    STEP = 3
    """Set in every solver or decoding step."""


class DType(enum.Enum):
    """Element types of graph tensors."""

    F32 = "float32"
    U8 = "uint8"
    I32 = "int32"

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.value)

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value in the graph. Identity, not equality of fields, tells two tensors apart."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    lifetime: Lifetime
    block: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.name}:{shape}:{self.dtype.value}:{self.lifetime.name}"


@dataclass(frozen=True, eq=False)
class Op:
    """One operation: ``output = kind(inputs; attrs)``. An absent optional input is ``None``."""

    kind: str
    inputs: tuple[Tensor | None, ...]
    output: Tensor
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def block(self) -> str:
        return self.output.block

    def operands(self) -> Iterable[Tensor]:
        """The inputs that are present."""
        return (tensor for tensor in self.inputs if tensor is not None)


@dataclass(frozen=True, eq=False)
class KeyValueState:
    """Keys and values of up to ``rows`` tokens that programs append to and attend to.

    Identity tells two of them apart: all graphs that name the same one share its memory in an executor.
    """

    rows: int
    kv_heads: int
    head: int

    @property
    def width(self) -> int:
        """Columns of the keys, and of the values."""
        return self.kv_heads * self.head

    @property
    def shape(self) -> tuple[int, int]:
        """Of both together: keys on the left, values on the right."""
        return self.rows, 2 * self.width

    @property
    def nbytes(self) -> int:
        """Of all its rows, in float32."""
        return DType.F32.itemsize * self.rows * 2 * self.width


@dataclass(eq=False)
class Graph:
    """Operations in an order in which every operand is defined before it is used.

    ``inputs`` are the values set from outside, by name; ``constants`` the values known at load
    (all of lifetime ``PROCESS``); ``states`` what is appended to, by the tensors of their first versions;
    ``outputs`` the results asked for, by name.
    """

    inputs: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[Tensor, LazyArray] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    states: dict[Tensor, KeyValueState] = field(default_factory=dict)

    def producers(self) -> dict[Tensor, Op]:
        """The operation that defines each computed tensor."""
        return {op.output: op for op in self.ops}

    def consumers(self) -> dict[Tensor, list[Op]]:
        """The operations that read each tensor; tensors nobody reads are absent."""
        readers: dict[Tensor, list[Op]] = {}
        for op in self.ops:
            for tensor in dict.fromkeys(op.operands()):
                readers.setdefault(tensor, []).append(op)
        return readers


def shortest(tensors: Iterable[Tensor | None]) -> Lifetime:
    """The lifetime of a result computed from ``tensors``: that of the shortest-lived of them."""
    return max((t.lifetime for t in tensors if t is not None), default=Lifetime.PROCESS)
