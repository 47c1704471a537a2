"""The file that ``vla_simd tune`` writes: settings measured for one machine and one shape of checkpoint."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros import __version__
from vla_simd_ros.cache_folder import cache_folder
from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.machine import cpu_details, cpu_model

FORMAT = 1
AUTO, DEFAULT = "auto", "default"

_OF_THE_ENGINE = ("threads", "isa", "affinity")

_LOGGER = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Choice:
    """Settings to make an engine with, and the groups of layers to compute in int8, with commas: "auto" for
    those that turn out to be faster when they are loaded."""

    settings: EngineSettings
    int8: str


def this_machine() -> dict[str, Any]:
    """What measurements depend on: the processor, its instruction sets, and the cores that may be used."""
    from vla_simd_ros import _engine

    return {
        "cpu": cpu_model(),
        "details": cpu_details(),
        "isas": _engine.available_isas(),
        "threads": _engine.default_threads(),
    }


def shape_of(checkpoint: Checkpoint) -> str:
    """A name for all checkpoints of the same policy, image sizes and weight shapes: "impact-1a2b3c4d5e"."""
    features = {**checkpoint.features_in, **checkpoint.features_out}
    shapes: dict[str, Sequence[int]] = {name: feature.shape for name, feature in features.items()}
    shapes |= {f"weight {name}": shape for name, shape in checkpoint.weights.shapes.items()}
    text = json.dumps({name: list(shape) for name, shape in sorted(shapes.items())})
    return f"{checkpoint.type}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def default_file(shape: str) -> Path:
    """Where results for this shape of checkpoint are written and looked for."""
    return cache_folder() / "tuning" / f"{shape}.json"


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
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)


def read_tuned(path: Path, shape: str, machine: Mapping[str, Any]) -> Choice:
    """What a file says for a checkpoint of this shape on this machine; "auto" where it says nothing of int8.

    Raises TuningError for a file that is damaged or was made by another version, for another checkpoint or on
    another machine, and OSError for one that cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise TuningError(f"{path} is damaged: {error}") from None
    expected = {
        "format": FORMAT,
        "vla_simd_ros": __version__,
        "checkpoint": shape,
        "machine": json.loads(json.dumps(dict(machine))),
    }
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise TuningError(f"{path} is damaged: expected an object with settings")
    int8 = content.get("int8", AUTO)
    if not isinstance(int8, str):
        raise TuningError(f"{path} is damaged: int8 is {int8!r}, expected names of groups with commas")
    for name, value in expected.items():
        if content.get(name) != value:
            raise TuningError(f"{path} is stale: {name} is {content.get(name)!r}, expected {value!r}")
    try:
        return Choice(EngineSettings().but(**content["settings"]), int8)
    except SettingError as error:
        raise TuningError(f"{path} is damaged: {error}") from None


def tuned_choice(checkpoint: Checkpoint) -> Choice:
    """What was tuned for this checkpoint on this machine; the defaults where there is nothing to use, and a
    line in the log that says which and why."""
    shape = shape_of(checkpoint)
    path = default_file(shape)
    default = Choice(EngineSettings(), AUTO)
    try:
        found = read_tuned(path, shape, this_machine())
    except FileNotFoundError:
        _LOGGER.info("no tuned settings in %s: using the defaults (vla_simd tune makes some)", path)
        return default
    except (TuningError, OSError) as error:
        _LOGGER.warning("tuned settings ignored, using the defaults: %s", error)
        return default
    _LOGGER.info("settings from %s: %s", path, found.settings.changed())
    return found


def resolve(
    source: EngineSettings | str | Path,
    checkpoint: Checkpoint,
    changes: Mapping[str, Any],
    int8: str = "",
) -> Choice:
    """Settings from where they are said to come from, with ``changes`` made to them.

    ``source`` is :data:`AUTO` for those tuned for this checkpoint, :data:`DEFAULT`, or a file that
    ``vla_simd tune`` wrote. If ``int8`` is "auto", tuned groups of layers stand in for it. What was tuned is
    no use to an engine of other threads or of another instruction set: where the changes name such, they
    are made to the defaults. Raises TuningError and OSError for a file that cannot be used, and SettingError.
    """
    if isinstance(source, EngineSettings):
        return Choice(source.but(**changes), int8)
    if source == DEFAULT:
        return Choice(EngineSettings().but(**changes), int8)
    if source == AUTO:
        tuned = tuned_choice(checkpoint)
    else:
        tuned = read_tuned(Path(source), shape_of(checkpoint), this_machine())
    settings = tuned.settings
    other = [name for name in _OF_THE_ENGINE if name in changes and changes[name] != getattr(settings, name)]
    if other and settings.changed():
        _LOGGER.warning("tuned settings ignored: they are for another choice of %s", ", ".join(other))
        return Choice(EngineSettings().but(**changes), int8)
    if "convolution" in changes:
        settings = settings.but(convolution_layers="")  # measured for another choice of algorithms
    return Choice(settings.but(**changes), tuned.int8 if int8 == AUTO else int8)
