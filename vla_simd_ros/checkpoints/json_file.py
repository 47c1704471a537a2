"""JSON files of a checkpoint folder, and typed access to their fields."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints.errors import CheckpointError

_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
}


def read_json_object(path: Path) -> dict[str, Any]:
    """The object stored in ``path``. Raises `CheckpointError` if it is missing, malformed or no object."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # A pipe or a device may never come to an end.
            raise CheckpointError(f"{path}: is no regular file, expected one")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: malformed JSON at line {error.lineno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        # Brackets nested too deep, or an integer of too many digits.
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: got {describe(value)}, expected an object")
    return value


def describe(value: object) -> str:
    """A JSON value in words: its type, and the value where it is short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    kind = next((name for cls, name in _NAMES.items() if isinstance(value, cls)), type(value).__name__)
    return kind if isinstance(value, dict | list) else f"{kind} ({value!r:.60})"


def field(owner: Mapping[str, Any], name: str, kind: type, where: object) -> Any:
    """``owner[name]``, checked to be of JSON type ``kind`` (floats: finite); ``where`` is for the error."""
    if name not in owner:
        raise CheckpointError(f"{where}: '{name}' is missing, expected {_NAMES[kind]}")
    value = owner[name]
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind in (int, float)):
        raise CheckpointError(f"{where}: '{name}' is {describe(value)}, expected {_NAMES[kind]}")
    if kind is float and not _is_finite(value):
        raise CheckpointError(f"{where}: '{name}' is {value!r:.60}, expected a finite number")
    return value


def _is_finite(value: float) -> bool:
    """Whether a float can hold ``value``, which may be an integer beyond any float."""
    return abs(value) <= sys.float_info.max
