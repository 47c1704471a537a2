"""What was tuned for a checkpoint on this machine, and what of it is used."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.cache_folder import cache_folder
from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.executors.convolution import convolution_shape
from vla_simd_ros.executors.convolution_forms import parse_layers
from vla_simd_ros.executors.settings import EngineSettings, SettingError
from vla_simd_ros.graph.fold_cache import FoldCache
from vla_simd_ros.graph.int8_groups import Int8GroupError, group_names, int8_groups, resolve_groups
from vla_simd_ros.loaded_programs import policy_ops
from vla_simd_ros.machine import cpu_details, cpu_model
from vla_simd_ros.policies.registry import define_policy
from vla_simd_ros.tuning.tuning_file import Tuned, TuningError, differing, read_tuning_file

AUTO, DEFAULT = "auto", "default"

_OF_THE_ENGINE = ("threads", "isa", "affinity")
_FORCED_KERNELS = ("VLA_SIMD_ISA", "VLA_SIMD_INT8")

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """Settings to make an engine with, and the groups of layers to compute in int8, with commas: "auto" for
    those that turn out to be faster when they are loaded."""

    settings: EngineSettings
    int8: str


def this_machine() -> dict[str, Any]:
    """What measurements depend on: the processor, its instruction sets, the cores that may be used, and the
    kernels that the environment forces, where it does."""
    from vla_simd_ros import _engine

    forced = {name: os.environ[name] for name in _FORCED_KERNELS if os.environ.get(name)}
    return {
        "cpu": cpu_model(),
        "details": cpu_details(),
        "isas": _engine.available_isas(),
        "threads": _engine.default_threads(),
        **({"forced": forced} if forced else {}),
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


def read_tuned(path: Path, checkpoint: Checkpoint, machine: Mapping[str, Any]) -> Choice:
    """What a file says for a checkpoint on this machine; "auto" where it says nothing of int8.

    Raises TuningError for a file that is damaged or was made by another version, for another checkpoint or on
    another machine, or that asks for what this machine or the policy does not have, and OSError for one that
    cannot be read.
    """
    tuned = read_tuning_file(path)
    here = json.loads(json.dumps(dict(machine)))
    for name, found, expected in (
        ("checkpoint", tuned.checkpoint, shape_of(checkpoint)),
        ("machine", tuned.machine, here),
    ):
        if difference := differing(name, found, expected):
            raise TuningError(f"{path} is stale: {difference}")
    try:
        settings = EngineSettings().but(**tuned.settings)
        _check_policy(tuned, settings, checkpoint)
    except (SettingError, Int8GroupError) as error:
        raise TuningError(f"{path} is damaged: {error}") from None
    try:
        _check_machine(settings)
    except SettingError as error:
        raise TuningError(f"{path} is not for this machine: {error}") from None
    return Choice(settings, AUTO if tuned.int8 is None else tuned.int8)


def _check_policy(tuned: Tuned, settings: EngineSettings, checkpoint: Checkpoint) -> None:
    """Raise Int8GroupError for groups, and SettingError for layers, that the policy does not have."""
    layers = parse_layers(settings.convolution_layers)
    if not tuned.int8 and not layers:
        return
    ops = policy_ops(define_policy(checkpoint), FoldCache())
    resolve_groups(group_names(tuned.int8 or ""), int8_groups(ops))
    known = dict.fromkeys(filter(None, map(convolution_shape, ops)))
    for shape in layers:
        if shape not in known:
            expected = f"expected some of {', '.join(map(str, known))}" if known else "expected none"
            raise SettingError(f"convolution_layers: the policy has no layer {shape}, {expected}")


def _check_machine(settings: EngineSettings) -> None:
    """Raise SettingError for an instruction set or CPUs that there are not here."""
    from vla_simd_ros.executors.simd_executor import SimdExecutor

    if settings.isa or settings.affinity:
        # An engine tells; one that asks the environment for nothing, which is no matter of the settings.
        SimdExecutor(threads=1, isa=settings.isa or "portable", affinity=settings.affinity)


def tuned_choice(checkpoint: Checkpoint) -> Choice:
    """What was tuned for this checkpoint on this machine; the defaults where there is nothing to use, and a
    line in the log that says which and why."""
    default = Choice(EngineSettings(), AUTO)
    try:
        path = default_file(shape_of(checkpoint))
        found = read_tuned(path, checkpoint, this_machine())
    except FileNotFoundError as error:
        _LOGGER.info("no tuned settings in %s: using the defaults (vla_simd tune makes some)", error.filename)
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
        tuned = read_tuned(Path(source), checkpoint, this_machine())
    settings = tuned.settings
    other = [name for name in _OF_THE_ENGINE if name in changes and changes[name] != getattr(settings, name)]
    if other and settings.changed():
        _LOGGER.warning("tuned settings ignored: they are for another choice of %s", ", ".join(other))
        return Choice(EngineSettings().but(**changes), int8)
    if "convolution" in changes:
        settings = settings.but(convolution_layers="")  # measured for another choice of algorithms
    return Choice(settings.but(**changes), tuned.int8 if int8 == AUTO else int8)
