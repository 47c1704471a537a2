"""Octo's published checkpoints, rewritten as folders of this package.

A published folder holds config.json, dataset_statistics.json, example_batch.msgpack, and for each saved step
the parameters in ``<step>/default/checkpoint``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.conversion.flax_msgpack import read_flax_msgpack
from vla_simd_ros.checkpoints.conversion.octo_model import octo_model_config
from vla_simd_ros.checkpoints.conversion.octo_weights import octo_weights
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.checkpoints.synthesis import features
from vla_simd_ros.checkpoints.synthesis.folder import write_folder
from vla_simd_ros.checkpoints.synthesis.octo import octo_preprocessor
from vla_simd_ros.checkpoints.synthesis.recipe import Recipe

F32 = npt.NDArray[np.float32]

_CONFIG, _STATISTICS, _EXAMPLE = "config.json", "dataset_statistics.json", "example_batch.msgpack"
_PARAMETERS = Path("default", "checkpoint")
_ACTION = "action"
# What normalization by each mode reads, and those values with which it changes nothing.
_ACTION_STATISTICS = {
    "MEAN_STD": (("mean", "mean", 0.0), ("std", "std", 1.0)),
    "QUANTILES": (("p01", "q01", -1.0), ("p99", "q99", 1.0)),
}
_IMAGE_STATISTICS = {
    "MIN_MAX": {"min": (0.0, 0.0, 0.0), "max": (1.0, 1.0, 1.0)},
    "MEAN_STD": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
}


def convert_octo(source: Path, target: Path, dataset: str = "") -> int:
    """Write the folder ``target`` from the published folder ``source``; returns the number of parameters.

    Actions are brought to the units of ``dataset``, one of those in dataset_statistics.json; it may be left
    out where there is only one. The tokenizer has to be put beside. Raises CheckpointError, and OptionError
    where ``target`` is in use.
    """
    parameters = _newest(source) / _PARAMETERS
    action = _action(source / _STATISTICS, dataset)
    original = read_json_object(source / _CONFIG)
    example = read_flax_msgpack(source / _EXAMPLE)
    tensors = octo_weights(read_flax_msgpack(parameters))
    where = source / _CONFIG
    config = octo_model_config(original, example, tensors, _width(action, source / _STATISTICS), where)
    statistics = {
        **_image_statistics(config),
        **_action_statistics(action, config["normalization_mapping"]["ACTION"], source / _STATISTICS),
    }
    recipe = Recipe(config, tensors, octo_preprocessor(config), features.postprocessor_steps(config))
    write_folder(target, recipe, statistics, "fp32")
    return sum(tensor.size for tensor in tensors.values())


def _newest(source: Path) -> Path:
    """The folder of the last saved step."""
    if not source.is_dir():
        raise CheckpointError(f"{source}: no such folder")
    steps = [path for path in source.iterdir() if path.name.isdecimal() and (path / _PARAMETERS).is_file()]
    if not steps:
        raise CheckpointError(f"{source}: has no <step>/{_PARAMETERS} with the parameters")
    return max(steps, key=lambda path: int(path.name))


def _action(path: Path, dataset: str) -> dict[str, Any]:
    """The action's statistics in one data set; a fine-tuned checkpoint has those of its own alone."""
    content = read_json_object(path)
    if _ACTION in content:
        if dataset:
            raise CheckpointError(
                f"{path}: has the statistics of one data set, not of '{dataset}' among others"
            )
        own: dict[str, Any] = json_file.field(content, _ACTION, dict, path)
        return own
    names = list(content)
    if not dataset and len(names) == 1:
        (dataset,) = names
    if dataset not in content:
        asked = f"'{dataset}' is not among" if dataset else "name one of"
        raise CheckpointError(f"{path}: {asked} its data sets: {', '.join(names) or '(none)'}")
    where = f"{path}: '{dataset}'"
    chosen: dict[str, Any] = json_file.field(
        json_file.field(content, dataset, dict, path), _ACTION, dict, where
    )
    return chosen


def _width(action: Mapping[str, Any], path: Path) -> int:
    return len(json_file.field(dict(action), "mean", list, f"{path}: {_ACTION}"))


def _action_statistics(action: dict[str, Any], mode: str, path: Path) -> dict[str, F32]:
    """Those that the mode reads; columns that the mask leaves out of it stay as the network gives them."""
    where = f"{path}: {_ACTION}"
    width = _width(action, path)
    mask = np.array(action.get("mask", [True] * width), bool)
    made = {}
    for theirs, ours, neutral in _ACTION_STATISTICS[mode]:
        values = np.array(json_file.field(action, theirs, list, where), np.float32)
        if values.shape != (width,) or mask.shape != (width,):
            raise CheckpointError(f"{where}: '{theirs}' and 'mask' have other lengths than 'mean' ({width})")
        made[f"{_ACTION}.{ours}"] = np.where(mask, values, np.float32(neutral))
    return made


def _image_statistics(config: dict[str, Any]) -> dict[str, F32]:
    chosen = _IMAGE_STATISTICS[config["normalization_mapping"]["VISUAL"]]
    return {
        f"{feature}.{name}": np.array(values, np.float32).reshape(3, 1, 1)
        for feature in config["input_features"]
        for name, values in chosen.items()
    }
