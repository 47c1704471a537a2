"""The file that ``vla_simd tune`` writes: settings measured for one machine and one shape of checkpoint."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros import __version__
from vla_simd_ros.tuning.plain_json import parse_json

FORMAT = 1

_KINDS: Mapping[str, tuple[type, str]] = {
    "format": (int, "an integer"),
    "vla_simd_ros": (str, "a version"),
    "checkpoint": (str, "the name of a shape of checkpoint"),
    "machine": (dict, "an object that describes it"),
    "settings": (dict, "an object with settings"),
    "measured": (list, "a list of lines"),
    "int8": (str, "names of groups with commas"),
}
_OPTIONAL = ("int8",)
# Characters of a value in an error.
_LONGEST_VALUE = 100


class TuningError(ValueError):
    """A tuning file that cannot be used here; says why."""


@dataclass(frozen=True)
class Tuned:
    """Settings that were measured: ``settings`` those that differ from the defaults, by name; ``measured``
    what was found, in words; ``checkpoint`` and ``machine`` what it is true of. ``int8`` are the groups of
    layers that are faster in int8, with commas; None where that was not measured."""

    checkpoint: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    measured: Sequence[str]
    int8: str | None = None


def write_tuned(tuned: Tuned, path: Path) -> None:
    """Write the file, in one step and with the folders that are missing."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "vla_simd_ros": __version__,
        "checkpoint": tuned.checkpoint,
        "machine": dict(tuned.machine),
        "settings": dict(tuned.settings),
        "measured": list(tuned.measured),
    }
    if tuned.int8 is not None:
        content["int8"] = tuned.int8
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")  # another process may be writing the same
    try:
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_tuning_file(path: Path) -> Tuned:
    """What a file says, whatever it is true of. Raises TuningError for one that is damaged or was made by
    another version, and OSError for one that cannot be read."""
    content = _read_object(path)
    # First: a file of another version may well say other things.
    for name, expected in {"format": FORMAT, "vla_simd_ros": __version__}.items():
        if difference := differing(name, content.get(name), expected):
            raise TuningError(f"{path} is stale: {difference}")
    for name in content:
        if name not in _KINDS:
            raise TuningError(f"{path} is damaged: '{name}' is unknown, expected {', '.join(_KINDS)}")
    for name, (kind, expected) in _KINDS.items():
        if name not in content and name not in _OPTIONAL:
            raise TuningError(f"{path} is damaged: '{name}' is missing, expected {expected}")
        if name in content and not isinstance(content[name], kind):
            raise TuningError(f"{path} is damaged: {name} is {_short(content[name])}, expected {expected}")
    told = {name: value for name, value in content.items() if name not in ("format", "vla_simd_ros")}
    return Tuned(**told)


def differing(name: str, found: Any, expected: Any) -> str:
    """Where two JSON values first differ: "machine.cpu is 'A', expected 'B'"; empty where they do not."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in dict.fromkeys([*expected, *found]):
            if difference := differing(f"{name}.{key}", found.get(key), expected.get(key)):
                return difference
        return ""
    if type(found) is type(expected) and found == expected:
        return ""
    return f"{name} is {_short(found)}, expected {_short(expected)}"


def _read_object(path: Path) -> dict[str, Any]:
    # A pipe or a device may never come to an end; of a folder, reading says what it is.
    if not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode):
        raise TuningError(f"{path} is no regular file, expected one")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TuningError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise TuningError(f"{path} is damaged: expected an object with settings")
    return content


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
