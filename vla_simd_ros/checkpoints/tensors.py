"""Weights of a safetensors file: read when they are asked for, converted to float32 where stored otherwise.

Values are read into memory of their own, so that a file that is cut short or written over while it is used
gives an error: touching a mapped page that is gone would end the process. Only a table of which few rows are
ever read is used where it is, see :meth:`TensorFile.mapped`.
"""

from __future__ import annotations

import difflib
import json
import math
import mmap
import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from vla_simd_ros.checkpoints.errors import CheckpointError

Array = npt.NDArray[Any]

_HEADER_LENGTH = np.dtype("<u8")
_STORED: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_FLOATS = ("F64", "F32", "F16", "BF16")
_CHECKED_AT_ONCE = 1 << 20  # elements


class TensorFile(Mapping[str, Array]):
    """The tensors of one safetensors file by name.

    Nothing is kept: each access reads the file. Float types are converted to float32; integers keep their
    type. Every float tensor handed out is finite. Raises `CheckpointError` when the file is missing,
    truncated or no safetensors file, and on access for a stored type that is not supported, for NaN or
    infinite values, and when the file was changed since it was opened. What is not in the file is looked for
    in ``beside``, where that is given.
    """

    def __init__(self, path: Path, beside: TensorFile | None = None) -> None:
        self.path = path
        self._beside = beside
        self._entries, self._data_start = _read_entries(path)
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        self._opened = self._state()
        self._mapping: mmap.mmap | None = None

    def __getitem__(self, name: str) -> Array:
        if (other := self._other(name)) is not None:
            return other[name]
        shape = tuple(self._entries[name]["shape"])
        return self._read(name, 0, self.size(name)).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or (self._beside is not None and name in self._beside)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The stored shape of every tensor, whatever its type."""
        own = {name: tuple(entry["shape"]) for name, entry in self._entries.items()}
        return own if self._beside is None else {**own, **self._beside.shapes, **own}

    def size(self, name: str) -> int:
        """Number of values of tensor ``name``."""
        if (other := self._other(name)) is not None:
            return other.size(name)
        return math.prod(self._entries[name]["shape"])

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The stored shape of float tensor ``name``, checked to be ``expected`` (when given), without reading
        its values."""
        if (other := self._other(name)) is not None:
            return other.shape(name, expected)
        if name not in self._entries:
            raise CheckpointError(f"{self.path}: tensor '{name}' is missing{self._similar(name)}")
        stored = self._entries[name]["dtype"]
        if stored not in _FLOATS:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' is stored as {stored}, expected one of {', '.join(_FLOATS)}"
            )
        shape = tuple(self._entries[name]["shape"])
        if expected is not None and shape != expected:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' has shape {list(shape)}, expected {list(expected)}"
            )
        return shape

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """Float tensor ``name`` as float32, checked to have ``shape`` (when given)."""
        self.shape(name, shape)
        return self[name]

    def rows(self, name: str, start: int, stop: int) -> Array:
        """Rows ``start`` to ``stop`` of float tensor ``name`` as float32, without reading the others."""
        if (other := self._other(name)) is not None:
            return other.rows(name, start, stop)
        shape = self.shape(name)
        row = math.prod(shape[1:])
        return self._read(name, start * row, stop * row).reshape(stop - start, *shape[1:])

    def mapped(self, name: str) -> Array:
        """Float tensor ``name``, of which few rows will be read: in the mapped file if it is float32 there.

        Call :meth:`check_mapped` before each use.
        """
        if (other := self._other(name)) is not None:
            return other.mapped(name)
        shape, size, begin = self.shape(name), self.size(name), self._begin(name)
        if self._entries[name]["dtype"] != "F32" or begin % _STORED["F32"].itemsize or not size:
            return self.tensor(name)
        for first in range(0, size, _CHECKED_AT_ONCE):
            self._read(name, first, min(first + _CHECKED_AT_ONCE, size))
        self._mapping = self._mapping or mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
        return np.frombuffer(self._mapping, _STORED["F32"], size, begin).reshape(shape)

    def check_mapped(self) -> None:
        """Raise `CheckpointError` if a mapped tensor cannot be trusted any more: the file was written to.

        Reading a part of a mapped file that was cut off would end the process.
        """
        if self._mapping is not None:
            self._check_unchanged()
        if self._beside is not None:
            self._beside.check_mapped()

    def _other(self, name: str) -> TensorFile | None:
        """The other file, if the tensor is there and not in this one."""
        elsewhere = name not in self._entries and self._beside is not None and name in self._beside
        return self._beside if elsewhere else None

    def _similar(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._entries, n=1)
        return f" (similar: '{near[0]}')" if near else ""

    def _check_unchanged(self) -> None:
        if self._state() != self._opened:
            raise CheckpointError(f"{self.path}: was changed since it was opened, load it again")

    def _state(self) -> tuple[int, int]:
        """What changes when the file is written to."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    def _begin(self, name: str) -> int:
        return self._data_start + int(self._entries[name]["data_offsets"][0])

    def _read(self, name: str, first: int, last: int) -> Array:
        """The elements ``first`` to ``last`` of a tensor in memory of their own, one after the other."""
        stored = self._entries[name]["dtype"]
        if stored not in _STORED:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' is stored as {stored}, expected one of {', '.join(_STORED)}"
            )
        values: Array = np.empty(last - first, _STORED[stored])
        self._check_unchanged()
        self._fill(values, self._begin(name) + first * values.itemsize)
        if stored not in _FLOATS:
            return values
        values = _as_float32(values, stored)
        finite = np.isfinite(values)
        if not finite.all():
            self._refuse(name, first + int(np.argmin(finite)))
        return values

    def _fill(self, values: Array, offset: int) -> None:
        target = values.view(np.uint8).data
        while target.nbytes:
            count = os.preadv(self._descriptor, [target], offset)
            if count == 0:
                raise CheckpointError(f"{self.path}: ends at byte {offset}, was longer when it was opened")
            target, offset = target[count:], offset + count

    def _refuse(self, name: str, first: int) -> NoReturn:
        """Tell which values of a float tensor are not finite; ``first`` is the first of them."""
        entry = self._entries[name]
        values: Array = np.empty(self.size(name), _STORED[entry["dtype"]])
        self._fill(values, self._begin(name))
        bad = int(np.count_nonzero(~np.isfinite(_as_float32(values, entry["dtype"]))))
        at = [int(i) for i in np.unravel_index(first, entry["shape"])]
        raise CheckpointError(
            f"{self.path}: tensor '{name}' has {bad} NaN or infinite values of {values.size}, first at {at}"
        )


def _as_float32(values: Array, stored: str) -> Array:
    if stored == "BF16":
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # a value beyond float32 is refused as infinite
        return values.astype(np.float32, copy=False)


def _read_entries(path: Path) -> tuple[dict[str, Any], int]:
    """Stored type, shape and byte range of each tensor, and where their bytes begin; the library checks the
    file's structure first."""
    if not path.is_file():
        what = "is no regular file, expected one" if path.exists() else "no such file"
        raise CheckpointError(f"{path}: {what}")
    try:
        # Opened here too, because the library calls a file that may not be read a missing one.
        with path.open("rb"), safe_open(path, framework="numpy"):
            pass
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: not a complete safetensors file of {path.stat().st_size} bytes: {error}"
        ) from None
    with path.open("rb") as file:
        length = int(np.frombuffer(file.read(8), _HEADER_LENGTH)[0])
        header: dict[str, Any] = json.loads(file.read(length))
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    return entries, _HEADER_LENGTH.itemsize + length
