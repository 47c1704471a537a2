"""Weights of which a folder keeps several files, and an index that says which tensor is in which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import describe, read_json_object
from vla_simd_ros.checkpoints.tensors import Array, TensorFile

INDEX = "model.safetensors.index.json"


class ShardedTensors(Mapping[str, Array]):
    """The tensors of all files that an index names, as if they were in one; see :class:`TensorFile`.

    Raises `CheckpointError` for an index or a file that is missing or malformed, and for a tensor that is not
    in the file that the index says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        places = _places(path)
        files = {name: TensorFile(path.parent / name) for name in sorted(set(places.values()))}
        for tensor, name in places.items():
            if tensor not in files[name]:
                raise CheckpointError(f"{path}: tensor '{tensor}' is said to be in {name}, which has none")
        self._files = {tensor: files[name] for tensor, name in places.items()}

    def __getitem__(self, name: str) -> Array:
        return self._files[name][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The stored shape of every tensor."""
        shapes: dict[str, tuple[int, ...]] = {}
        for file in self._distinct():
            shapes |= file.shapes
        return {name: shapes[name] for name in self._files}

    def size(self, name: str) -> int:
        """Number of values of tensor ``name``."""
        return self._files[name].size(name)

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """See :meth:`TensorFile.shape`, for this and the others."""
        return self._file(name).shape(name, expected)

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        return self._file(name).tensor(name, shape)

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self._file(name).rows(name, start, stop)

    def mapped(self, name: str) -> Array:
        return self._file(name).mapped(name)

    def check_mapped(self) -> None:
        for file in self._distinct():
            file.check_mapped()

    def _file(self, name: str) -> TensorFile:
        if name not in self._files:
            raise CheckpointError(f"{self.path}: tensor '{name}' is missing")
        return self._files[name]

    def _distinct(self) -> list[TensorFile]:
        return list({id(file): file for file in self._files.values()}.values())


def _places(path: Path) -> dict[str, str]:
    """The file that holds each tensor."""
    places = json_file.field(read_json_object(path), "weight_map", dict, path)
    if not places:
        raise CheckpointError(f"{path}: 'weight_map' names no tensor, expected at least one")
    for tensor, name in places.items():
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise CheckpointError(
                f"{path}: weight_map['{tensor}'] is {describe(name)}, expected a file's name in the folder"
            )
    return dict(places)
