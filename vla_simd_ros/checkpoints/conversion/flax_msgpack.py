"""Trees of arrays as Flax serializes them: MessagePack with an extension type for arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints.errors import CheckpointError

Array = npt.NDArray[Any]

_ARRAY, _SCALAR = 1, 3
_BFLOAT16 = "bfloat16"


def read_flax_msgpack(path: Path) -> dict[str, Array]:
    """The arrays in ``path`` by name, the names of nested ones joined with slashes.

    Raises CheckpointError for a file that is none, ModuleNotFoundError where the library msgpack is not
    installed.
    """
    import msgpack

    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        tree = msgpack.unpackb(
            path.read_bytes(), ext_hook=_array, raw=False, strict_map_key=False, max_ext_len=2**32 - 1
        )
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise CheckpointError(f"{path}: not a MessagePack file of Flax: {error}") from None
    if not isinstance(tree, dict):
        raise CheckpointError(f"{path}: holds a {type(tree).__name__}, expected a tree of arrays")
    return dict(_leaves(tree, "", path))


def _leaves(tree: Mapping[Any, Any], prefix: str, path: Path) -> list[tuple[str, Array]]:
    leaves: list[tuple[str, Array]] = []
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            leaves += _leaves(value, f"{name}/", path)
        elif isinstance(value, np.ndarray):
            leaves.append((name, value))
        else:
            # Orbax leaves a text in place of arrays that it keeps in files of their own.
            raise CheckpointError(
                f"{path}: '{name}' is {type(value).__name__} {str(value)[:60]!r}, expected an array "
                "(a checkpoint with all parameters in this file)"
            )
    return leaves


def _array(code: int, data: bytes) -> Array:
    import msgpack

    if code not in (_ARRAY, _SCALAR):
        raise ValueError(f"extension type {code} is unknown, expected {_ARRAY} (array) or {_SCALAR} (scalar)")
    shape, dtype, content = msgpack.unpackb(data, raw=False, max_bin_len=2**32 - 1)
    if dtype == _BFLOAT16:
        wide = np.frombuffer(content, np.uint16).astype(np.uint32) << 16
        return np.asarray(wide.view(np.float32).reshape(shape))
    return np.asarray(np.frombuffer(content, np.dtype(dtype)).reshape(shape))
