"""Weights of a safetensors file: mapped into memory, converted to float32 where stored otherwise."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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


class TensorFile(Mapping[str, Array]):
    """The tensors of one safetensors file by name.

    A float32 tensor is a read-only view of the mapped file; other float types are converted to
    float32 when asked for; integers keep their type. Every float tensor handed out is finite.
    Raises `CheckpointError` when the file is missing, truncated or no safetensors file, and on
    access for a stored type that is not supported and for NaN or infinite values.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries = _read_entries(path)
        self._bytes = np.memmap(path, np.uint8, mode="r")
        self._data_start = _HEADER_LENGTH.itemsize + int(self._bytes[:8].view(_HEADER_LENGTH)[0])
        self._ready: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._ready:
            self._ready[name] = self._load(name)
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        """The stored shape of tensor ``name``, without reading its values."""
        return tuple(self._entries[name]["shape"])

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """Float tensor ``name`` as float32, checked to have ``shape`` (when given)."""
        if name not in self._entries:
            raise CheckpointError(f"{self.path}: tensor '{name}' is missing{self._similar(name)}")
        stored = self._entries[name]["dtype"]
        if stored not in _FLOATS:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' is stored as {stored}, expected one of {', '.join(_FLOATS)}"
            )
        if shape is not None and self.shape(name) != shape:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' has shape {list(self.shape(name))}, expected {list(shape)}"
            )
        return self[name]

    def _similar(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._entries, n=1)
        return f" (similar: '{near[0]}')" if near else ""

    def _load(self, name: str) -> Array:
        entry = self._entries[name]
        stored = entry["dtype"]
        if stored not in _STORED:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' is stored as {stored}, expected one of {', '.join(_STORED)}"
            )
        begin, end = (self._data_start + offset for offset in entry["data_offsets"])
        # A plain ndarray view, so that results computed from it do not carry the memmap class along.
        raw: npt.NDArray[np.uint8] = self._bytes[begin:end].view(type=np.ndarray)
        values: Array = raw.view(_STORED[stored]).reshape(entry["shape"])
        if not values.flags.aligned:
            values = values.copy()
        return self._finite(name, _as_float32(values, stored)) if stored in _FLOATS else values

    def _finite(self, name: str, values: Array) -> Array:
        finite = np.isfinite(values)
        if not finite.all():
            bad = int(values.size - np.count_nonzero(finite))
            at = [int(i) for i in np.argwhere(~finite)[0]]
            raise CheckpointError(
                f"{self.path}: tensor '{name}' has {bad} NaN or infinite values of {values.size}, "
                f"first at {at}"
            )
        return values


def _as_float32(values: Array, stored: str) -> Array:
    if stored == "BF16":
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)


def _read_entries(path: Path) -> dict[str, Any]:
    """Stored type, shape and byte range of each tensor; the library checks the file's structure first."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
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
    return {name: entry for name, entry in header.items() if name != "__metadata__"}
