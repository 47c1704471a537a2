"""Weights and metadata of a GGUF file: read when they are asked for, expanded to float32 as ggml defines it.

As with safetensors files, values are read into memory of their own, so that a file that is cut short while it
is used gives an error and not the end of the process.
"""

from __future__ import annotations

import difflib
import math
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.gguf_header import GgufTensor, gguf_library, read_gguf_header
from vla_simd_ros.graph.blocks import BLOCK_BYTES, Blocks
from vla_simd_ros.graph.ir import Array

_NUMBERS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"}
_HALVES = {"q8_0": 1, "q4_0": 1, "q4_1": 2}
"""How many numbers in float16 a block begins with."""


class GgufFile:
    """One GGUF file.

    Raises CheckpointError, which names the file, the tensor and what was expected: when the file is missing,
    cut short or no GGUF file, and on access for a tensor that is not there, has another shape, is of a type
    that cannot be expanded or holds values that are not finite, and when the file was changed since it was
    opened.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        header = read_gguf_header(self.path)
        self.fields: dict[str, Any] = header.fields
        """The metadata: numbers, texts, and lists of these."""
        self._tensors = header.tensors
        self._descriptor = os.open(self.path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        self._opened = self._state()

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors in the order of the file."""
        return tuple(self._tensors)

    def field(self, key: str, expected: type) -> Any:
        """The metadata under ``key``, checked to be of a type; an integer will do for a float."""
        if key not in self.fields:
            raise CheckpointError(f"{self.path}: field '{key}' is missing{_similar(key, self.fields)}")
        value = self.fields[key]
        if expected is float and type(value) is int:
            return float(value)
        if type(value) is not expected:
            kind = type(value).__name__
            raise CheckpointError(
                f"{self.path}: field '{key}' is of type {kind}, expected {expected.__name__}"
            )
        return value

    def kind(self, name: str) -> str:
        """How tensor ``name`` is stored: "F32", "Q8_0", ..."""
        return self._entry(name).kind

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The shape of tensor ``name`` in the order of numpy, checked to be ``expected`` (when given)."""
        shape = self._entry(name).shape
        if expected is not None and shape != expected:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' has shape {list(shape)}, expected {list(expected)}"
            )
        return shape

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        """Tensor ``name`` as float32, checked to have ``shape`` (when given)."""
        stored = self.shape(name, shape)
        return self._expanded(name, self._read(name, 0, math.prod(stored))).reshape(stored)

    def rows(self, name: str, start: int, stop: int) -> Array:
        """Rows ``start`` to ``stop`` of tensor ``name`` as float32, without reading the others."""
        shape = self.shape(name)
        row = math.prod(shape[1:])
        return self._expanded(name, self._read(name, start * row, stop * row)).reshape(
            stop - start, *shape[1:]
        )

    def mapped(self, name: str) -> Array:
        """Tensor ``name`` as float32, in memory of its own."""
        return self.tensor(name)

    def check_mapped(self) -> None:
        """Nothing is mapped."""

    def packed(self, name: str) -> tuple[str, Array]:
        """How tensor ``name`` is stored, and its bytes as they are: [rows, bytes of a row]."""
        entry = self._entry(name)
        row = entry.shape[-1] if entry.shape else 1
        data = self._read(name, 0, math.prod(entry.shape))
        return entry.kind, data.reshape(-1, row // entry.block_values * entry.block_bytes)

    def block_form(self, name: str) -> str | None:
        """The format of :meth:`blocks`, if there are any."""
        entry = self._entry(name)
        form = entry.kind.lower()
        return form if form in BLOCK_BYTES and len(entry.shape) == 2 else None

    def blocks(self, name: str) -> Blocks | None:
        """Tensor ``name`` in blocks that the engine computes with; nothing where it is stored otherwise."""
        form = self.block_form(name)
        if form is None:
            return None
        _, data = self.packed(name)
        heads = data.reshape(-1, self._entry(name).block_bytes)[:, : 2 * _HALVES[form]]
        self._check_finite(name, np.ascontiguousarray(heads).view("<f2"), "scales")
        return Blocks(form, data)

    def _entry(self, name: str) -> GgufTensor:
        if name not in self._tensors:
            raise CheckpointError(f"{self.path}: tensor '{name}' is missing{_similar(name, self._tensors)}")
        return self._tensors[name]

    def _read(self, name: str, first: int, last: int) -> Array:
        """The bytes of the elements ``first`` to ``last``, which begin and end with a block."""
        entry = self._entry(name)
        begin, end = (at // entry.block_values * entry.block_bytes for at in (first, last))
        data = np.empty(end - begin, np.uint8)
        if self._state() != self._opened:
            raise CheckpointError(f"{self.path}: was changed since it was opened, load it again")
        target, offset = data.data, entry.offset + begin
        while target.nbytes:
            count = os.preadv(self._descriptor, [target], offset)
            if count == 0:
                raise CheckpointError(f"{self.path}: ends at byte {offset}, was longer when it was opened")
            target, offset = target[count:], offset + count
        return data

    def _expanded(self, name: str, data: Array) -> Array:
        """The float32 values of stored bytes."""
        entry = self._entry(name)
        if entry.kind in _NUMBERS:
            values = data.view(_NUMBERS[entry.kind]).astype(np.float32, copy=False)
        else:
            library = gguf_library()
            try:
                rows = data.reshape(-1, entry.shape[-1] // entry.block_values * entry.block_bytes)
                # Values that are not finite are refused below, without a warning before.
                with np.errstate(all="ignore"):
                    values = library.dequantize(rows, library.GGMLQuantizationType[entry.kind])
            except NotImplementedError:
                raise CheckpointError(
                    f"{self.path}: tensor '{name}' is stored as {entry.kind}, which cannot be expanded"
                ) from None
        self._check_finite(name, values, "values")
        return values

    def _check_finite(self, name: str, values: Array, role: str) -> None:
        bad = values.size - int(np.count_nonzero(np.isfinite(values)))
        if bad:
            raise CheckpointError(
                f"{self.path}: tensor '{name}' has {bad} NaN or infinite {role} of {values.size}"
            )

    def _state(self) -> tuple[int, int]:
        """What changes when the file is written to."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns


def _similar(name: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (similar: '{near[0]}')" if near else ""
