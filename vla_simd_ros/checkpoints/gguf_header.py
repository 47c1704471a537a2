"""The header of a GGUF file: what is said about the model, and where each tensor lies.

It is walked here, in steps that are checked against the length of the file: the reader of the `gguf`
library takes counts and lengths as they come, and one wrong byte keeps it busy for hours. What the numbers
mean (types of values, layouts of blocks) comes from the library.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from vla_simd_ros.checkpoints.errors import CheckpointError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_AXES = 4
_MOST_NESTING = 4

_SCALARS = {
    "UINT8": "<B",
    "INT8": "<b",
    "UINT16": "<H",
    "INT16": "<h",
    "UINT32": "<I",
    "INT32": "<i",
    "FLOAT32": "<f",
    "BOOL": "<?",
    "UINT64": "<Q",
    "INT64": "<q",
    "FLOAT64": "<d",
}
_SMALLEST_VALUE = {
    **{name: struct.calcsize(code) for name, code in _SCALARS.items()},
    "STRING": 8,
    "ARRAY": 12,
}
_SMALLEST_ENTRY = 24  # a tensor with an empty name and no axes


@dataclass(frozen=True)
class GgufTensor:
    """A stored tensor: its values in the order of numpy (the last axis is adjacent in memory), in blocks of
    ``block_values`` along the last axis that take ``block_bytes`` each."""

    kind: str
    shape: tuple[int, ...]
    block_values: int
    block_bytes: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufHeader:
    """The metadata by key, and the tensors by name with their offsets in the file."""

    fields: dict[str, Any]
    tensors: dict[str, GgufTensor]


def gguf_library() -> Any:
    """The `gguf` package, which defines the format; CheckpointError where it is not installed."""
    try:
        return import_module("gguf")
    except ImportError as error:
        raise CheckpointError(
            f"GGUF files need the package 'gguf' ({error}): pip install 'vla_simd_ros[gguf]'"
        ) from None


def read_gguf_header(path: Path) -> GgufHeader:
    """Raises CheckpointError, which names the file and what is wrong with it."""
    library = gguf_library()
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        with path.open("rb") as file:
            return _Walk(path, file, library).header()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None


class _Walk:
    """A pass over the header from its beginning."""

    def __init__(self, path: Path, file: BinaryIO, library: Any) -> None:
        self._path = path
        self._file = file
        self._library = library
        self._left = self._length = path.stat().st_size

    def header(self) -> GgufHeader:
        magic = self._take(len(_MAGIC), "the header")
        if magic != _MAGIC:
            raise self._error(f"begins with {magic!r}, expected {_MAGIC!r}")
        version = self._number("<I", "the version")
        if version not in _VERSIONS:
            raise self._error(f"is of version {version}, expected {' or '.join(map(str, _VERSIONS))}")
        tensor_count = self._number("<Q", "the number of tensors")
        field_count = self._number("<Q", "the number of fields")
        fields = dict(self._named(field_count, 12, "field", self._field))
        found = dict(self._named(tensor_count, _SMALLEST_ENTRY, "tensor", self._tensor))
        return GgufHeader(fields, self._placed(found, fields.get("general.alignment", 32)))

    def _named(
        self, count: int, smallest: int, role: str, read: Callable[[str], Any]
    ) -> Iterator[tuple[str, Any]]:
        """``count`` entries, each of which begins with its name."""
        self._check_count(count, smallest, f"its {role}s")
        names: set[str] = set()
        for number in range(count):
            name = self._text(f"the name of {role} {number}")
            if name in names:
                raise self._error(f"has {role} '{name}' twice")
            names.add(name)
            yield name, read(name)

    def _field(self, key: str) -> Any:
        return self._value(self._value_type(key), f"field '{key}'")

    def _value_type(self, key: str) -> str:
        number = self._number("<I", f"the type of field '{key}'")
        try:
            return str(self._library.GGUFValueType(number).name)
        except ValueError:
            raise self._error(f"field '{key}' is of unknown type {number}") from None

    def _value(self, kind: str, role: str, depth: int = 0) -> Any:
        if kind == "STRING":
            return self._text(role)
        if kind != "ARRAY":
            return self._number(_SCALARS[kind], role)
        if depth == _MOST_NESTING:
            raise self._error(f"{role} is nested more than {_MOST_NESTING} deep")
        item = self._value_type(role)
        count = self._number("<Q", f"the length of {role}")
        self._check_count(count, _SMALLEST_VALUE[item], role)
        if item in _SCALARS:
            code = _SCALARS[item][1:]
            data = self._take(count * struct.calcsize(_SCALARS[item]), role)
            return list(struct.unpack(f"<{count}{code}", data))
        return [self._value(item, role, depth + 1) for _ in range(count)]

    def _tensor(self, name: str) -> GgufTensor:
        role = f"tensor '{name}'"
        axes = self._number("<I", f"the number of axes of {role}")
        if axes > _MOST_AXES:
            raise self._error(f"{role} has {axes} axes, expected at most {_MOST_AXES}")
        shape = tuple(self._number("<Q", f"the shape of {role}") for _ in range(axes))[::-1]
        number = self._number("<I", f"the type of {role}")
        offset = self._number("<Q", f"the offset of {role}")
        try:
            kind = self._library.GGMLQuantizationType(number)
            block_values, block_bytes = self._library.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise self._error(f"{role} is of unknown type {number}") from None
        size = 1
        for side in shape:
            size *= side
        row = shape[-1] if shape else 1
        if row % block_values != 0:
            raise self._error(
                f"{role} has rows of {row} values, expected a multiple of {block_values} for {kind.name}"
            )
        return GgufTensor(
            kind.name, shape, block_values, block_bytes, offset, size // block_values * block_bytes
        )

    def _placed(self, tensors: dict[str, GgufTensor], alignment: Any) -> dict[str, GgufTensor]:
        """The tensors with their offsets from the beginning of the file."""
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._error(f"general.alignment is {alignment!r}, expected a power of two")
        begin = -(-(self._length - self._left) // alignment) * alignment
        placed: dict[str, GgufTensor] = {}
        for name, tensor in tensors.items():
            offset = begin + tensor.offset
            if offset + tensor.nbytes > self._length:
                raise self._error(
                    f"tensor '{name}' ends at byte {offset + tensor.nbytes}, the file has {self._length}: "
                    "it was cut short"
                )
            placed[name] = replace(tensor, offset=offset)
        return placed

    def _check_count(self, count: int, smallest: int, role: str) -> None:
        if count * smallest > self._left:
            raise self._error(
                f"{count} values of {role} cannot lie in the {self._left} bytes that follow: it was cut "
                "short or written over"
            )

    def _text(self, role: str) -> str:
        length = self._number("<Q", f"the length of {role}")
        data = self._take(length, role)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self._error(f"{role} is no UTF-8 text: {error}") from None

    def _number(self, code: str, role: str) -> Any:
        return struct.unpack(code, self._take(struct.calcsize(code), role))[0]

    def _take(self, count: int, role: str) -> bytes:
        data = self._file.read(count) if count <= self._left else b""
        if len(data) != count:
            raise self._error(
                f"ends at byte {self._length}, within {role}: it was cut short or is no GGUF file"
            )
        self._left -= count
        return data

    def _error(self, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._path}: {problem}")
