"""Normalization, renaming and tokenization settings from a checkpoint's processor files.

New folders keep them in ``policy_preprocessor.json`` and ``policy_postprocessor.json``, whose steps
name a ``state_file`` with the statistics. Old folders keep the statistics among the weights, as
``normalize_inputs.buffer_*`` and ``unnormalize_outputs.buffer_*``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind, read_features
from vla_simd_ros.checkpoints.json_file import describe, read_json_object
from vla_simd_ros.checkpoints.normalization import (
    Normalizer,
    NormMode,
    Statistics,
    Unnormalizer,
    make_normalizer,
    make_unnormalizer,
)
from vla_simd_ros.checkpoints.prompt import Prompt, in_one_line
from vla_simd_ros.checkpoints.tensors import Array, TensorFile

PREPROCESSOR = "policy_preprocessor.json"
POSTPROCESSOR = "policy_postprocessor.json"
_DEFAULT_EPS = 1e-8

_RENAME = "rename_observations_processor"
_NORMALIZE = "normalizer_processor"
_UNNORMALIZE = "unnormalizer_processor"
_TOKENIZE = "tokenizer_processor"
_NEW_LINE = "smolvla_new_line_processor"
_STATE_PROMPT = "pi0_fast_prepare_state_tokenizer_processor_step"
_RELATIVE, _ABSOLUTE = "relative_actions_processor", "absolute_actions_processor"
# Steps that move or reshape data for a tensor library and change no value, and one for training alone.
_NEUTRAL = ("to_batch_processor", "device_processor", "action_tokenizer_processor")
_PRE_STEPS = (_RENAME, _NORMALIZE, _NEW_LINE, _STATE_PROMPT, _TOKENIZE, _RELATIVE, *_NEUTRAL)
_POST_STEPS = (_UNNORMALIZE, _ABSOLUTE, *_NEUTRAL)


@dataclass(frozen=True)
class Processors:
    """What happens to observations before the network, and to its output after it.

    ``new_line``: an instruction ends with a line feed, which is added where there is none. ``prompt``: it is
    read within a longer text.
    """

    normalizers: Mapping[str, Normalizer]
    unnormalizers: Mapping[str, Unnormalizer]
    rename_map: Mapping[str, str] = field(default_factory=dict)
    max_tokens: int | None = None
    new_line: bool = False
    prompt: Prompt | None = None


@dataclass(frozen=True)
class _Step:
    """A normalization step: modes by feature kind, and the file with its statistics.

    ``key`` gives the part of a statistic's tensor name that stands for the feature, ``source`` names
    the file in errors. Statistics that no mode asks for are never read.
    """

    modes: Mapping[FeatureKind, NormMode]
    file: TensorFile | None
    key: Callable[[Feature], str]
    eps: float
    source: str
    only: frozenset[str] | None = None

    def mode(self, feature: Feature) -> NormMode:
        if self.only is not None and feature.name not in self.only:
            return NormMode.IDENTITY
        return self.modes.get(feature.kind, NormMode.IDENTITY)

    def normalizer(self, feature: Feature) -> Normalizer:
        return make_normalizer(feature, self.mode(feature), self._statistics(feature), self.eps, self.source)

    def unnormalizer(self, feature: Feature) -> Unnormalizer:
        return make_unnormalizer(
            feature, self.mode(feature), self._statistics(feature), self.eps, self.source
        )

    def _statistics(self, feature: Feature) -> Statistics:
        names = {name: f"{self.key(feature)}.{name}" for name in self.mode(feature).statistics}
        file = self.file
        return {} if file is None else {n: file.tensor(key) for n, key in names.items() if key in file}


def read_processors(
    folder: Path,
    config: dict[str, Any],
    weights: TensorFile,
    features_in: Mapping[str, Feature],
    features_out: Mapping[str, Feature],
) -> Processors:
    """The processors of a checkpoint ``folder``, from its JSON files or, failing those, its weights."""
    if (folder / PREPROCESSOR).exists() or (folder / POSTPROCESSOR).exists():
        return _from_files(folder, features_in, features_out)
    return _from_weights(folder, config, weights, features_in, features_out)


def _from_files(
    folder: Path, features_in: Mapping[str, Feature], features_out: Mapping[str, Feature]
) -> Processors:
    pre = _read_steps(folder / PREPROCESSOR, _PRE_STEPS)
    post = _read_steps(folder / POSTPROCESSOR, _POST_STEPS)
    for name, entry in ((_RELATIVE, pre.get(_RELATIVE)), (_ABSOLUTE, post.get(_ABSOLUTE))):
        _check_disabled(f"{folder}: step '{name}'", entry)
    declared = {**features_in, **features_out}
    before = _normalization(folder, PREPROCESSOR, pre, _NORMALIZE, declared)
    after = _normalization(folder, POSTPROCESSOR, post, _UNNORMALIZE, declared)
    return Processors(
        {name: before.normalizer(feature) for name, feature in features_in.items()},
        {name: after.unnormalizer(feature) for name, feature in features_out.items()},
        _rename_map(folder / PREPROCESSOR, pre.get(_RENAME, {}), features_in),
        _max_tokens(folder / PREPROCESSOR, pre.get(_TOKENIZE)),
        _NEW_LINE in pre,
        _state_prompt(features_in) if _STATE_PROMPT in pre else None,
    )


def read_statistics(folder: Path) -> dict[str, Array]:
    """All statistics that a folder's preprocessor normalizes with, by ``<feature>.<statistic>``."""
    path = folder / PREPROCESSOR
    entry = _read_steps(path, _PRE_STEPS).get(_NORMALIZE, {})
    name = json_file.field(entry, "state_file", str, f"{path}: step '{_NORMALIZE}'")
    file = _state_file(folder, name, f"{path}: step '{_NORMALIZE}'")
    return {key: file.tensor(key) for key in file}


def _read_steps(path: Path, known: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The steps of a processor file by registry name."""
    steps: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(json_file.field(read_json_object(path), "steps", list, path)):
        where = f"{path}: step {index}"
        if not isinstance(entry, dict):
            raise CheckpointError(f"{where} is {describe(entry)}, expected an object")
        name = entry.get("registry_name", entry.get("class"))
        if name not in known:
            raise CheckpointError(f"{where}: unknown step '{name}', expected one of {', '.join(known)}")
        if name in steps and name not in _NEUTRAL:
            raise CheckpointError(f"{where}: a second '{name}', expected one")
        steps[name] = entry
    return steps


def _state_prompt(features_in: Mapping[str, Feature]) -> Prompt:
    """That of pi0-FAST: every column of the state is a number of up to three digits."""
    columns = sum(f.channels for f in features_in.values() if f.kind is FeatureKind.STATE)
    return Prompt("<bos>", "Task: ", ", State: {state};\n", in_one_line, " ".join(["255"] * columns))


def _check_disabled(where: str, entry: Mapping[str, Any] | None) -> None:
    """A step that may be there, but not at work."""
    config = {} if entry is None else json_file.field({"config": {}, **entry}, "config", dict, where)
    if json_file.field({"enabled": False, **config}, "enabled", bool, where):
        raise CheckpointError(f"{where}: enabled is true, expected false")


def _normalization(
    folder: Path,
    file: str,
    steps: Mapping[str, dict[str, Any]],
    name: str,
    declared: Mapping[str, Feature],
) -> _Step:
    where = f"{folder / file}: step '{name}'"
    if name not in steps:
        raise CheckpointError(f"{where} is missing")
    entry = steps[name]
    config = json_file.field(entry, "config", dict, where)
    modes = read_modes(json_file.field(config, "norm_map", dict, where), where)
    _check_features(config, declared, where)
    eps = json_file.field(config, "eps", float, where) if "eps" in config else _DEFAULT_EPS
    if eps < 0:
        raise CheckpointError(f"{where}: 'eps' is {eps}, expected 0 or more")
    chosen = _chosen_features(config, where)
    if "state_file" not in entry:
        return _Step(modes, None, _feature_name, eps, f"{where} (which names no state_file)", chosen)
    state = _state_file(folder, json_file.field(entry, "state_file", str, where), where)
    return _Step(modes, state, _feature_name, eps, str(state.path), chosen)


def _state_file(folder: Path, name: str, where: str) -> TensorFile:
    if not name or Path(name).name != name:
        raise CheckpointError(
            f"{where}: 'state_file' is '{name:.60}', expected the name of a file in the folder"
        )
    return TensorFile(folder / name)


def _chosen_features(config: dict[str, Any], where: str) -> frozenset[str] | None:
    """The features that a step is restricted to, if it is."""
    key = "normalize_observation_keys"
    if config.get(key) is None:
        return None
    names = json_file.field(config, key, list, where)
    for name in names:
        if not isinstance(name, str):
            raise CheckpointError(f"{where}: '{key}' has {describe(name)} in it, expected strings")
    return frozenset(names)


def _feature_name(feature: Feature) -> str:
    return feature.name


def read_modes(mapping: Mapping[str, Any], where: object) -> dict[FeatureKind, NormMode]:
    """Normalization modes by feature kind, from a JSON object of names."""
    modes = {}
    for kind_name, mode_name in mapping.items():
        try:
            kind = FeatureKind(kind_name)
        except ValueError:
            kinds = ", ".join(k.value for k in FeatureKind)
            raise CheckpointError(
                f"{where}: unknown feature type '{kind_name}' with a normalization mode, "
                f"expected one of {kinds}"
            ) from None
        try:
            modes[kind] = NormMode(mode_name)
        except ValueError:
            known = ", ".join(m.value for m in NormMode)
            raise CheckpointError(
                f"{where}: unknown normalization mode '{mode_name}' for {kind_name}, expected one of {known}"
            ) from None
    return modes


def _check_features(config: dict[str, Any], declared: Mapping[str, Feature], where: str) -> None:
    """The step must speak of the same shapes as config.json."""
    for name, feature in read_features(config, "features", where).items() if "features" in config else ():
        expected = declared.get(name)
        if expected is not None and expected.shape != feature.shape:
            is_camera = feature.kind is FeatureKind.VISUAL
            subject = f"camera '{feature.camera}'" if is_camera else f"feature '{name}'"
            raise CheckpointError(
                f"{where}: {subject} has shape {list(feature.shape)}, config.json has {list(expected.shape)}"
            )


def _rename_map(path: Path, step: Mapping[str, Any], features_in: Mapping[str, Feature]) -> dict[str, str]:
    where = f"{path}: step '{_RENAME}'"
    if not step:
        return {}
    config = json_file.field(step, "config", dict, where)
    renames = json_file.field(config, "rename_map", dict, where) if "rename_map" in config else {}
    for old, new in renames.items():
        if not isinstance(new, str):
            raise CheckpointError(f"{where}: rename_map['{old}'] is {describe(new)}, expected a string")
    targets = list(renames.values())
    for new in targets:
        if targets.count(new) > 1:
            olds = ", ".join(f"'{o}'" for o, n in renames.items() if n == new)
            raise CheckpointError(f"{where}: rename_map gives {olds} the same name '{new}'")
    for old, new in renames.items():
        if old in features_in and new in features_in and old not in targets:
            raise CheckpointError(
                f"{where}: rename_map makes '{old}' the input '{new}', "
                f"and nothing is left for the input '{old}'"
            )
    return dict(renames)


def _max_tokens(path: Path, step: Mapping[str, Any] | None) -> int | None:
    if step is None:
        return None
    where = f"{path}: step '{_TOKENIZE}'"
    config = json_file.field(step, "config", dict, where)
    return json_file.field(config, "max_length", int, where) if "max_length" in config else None


def _from_weights(
    folder: Path,
    config: dict[str, Any],
    weights: TensorFile,
    features_in: Mapping[str, Feature],
    features_out: Mapping[str, Feature],
) -> Processors:
    where = folder / "config.json"
    modes = read_modes(json_file.field(config, "normalization_mapping", dict, where), where)
    source = f"{weights.path} (the folder has no {PREPROCESSOR})"
    before = _Step(modes, weights, _buffer_key("normalize_inputs"), _DEFAULT_EPS, source)
    after = _Step(modes, weights, _buffer_key("unnormalize_outputs"), _DEFAULT_EPS, source)
    return Processors(
        {name: before.normalizer(feature) for name, feature in features_in.items()},
        {name: after.unnormalizer(feature) for name, feature in features_out.items()},
        # Folders of that time say nothing of it: the policy did it.
        new_line=config["type"] == "smolvla",
    )


def _buffer_key(group: str) -> Callable[[Feature], str]:
    """Names of statistics kept among the weights, where dots of a feature's key became underscores."""
    return lambda feature: f"{group}.buffer_{feature.name.replace('.', '_')}"
