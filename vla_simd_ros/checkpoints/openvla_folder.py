"""What a published OpenVLA folder says of the robot: it is no folder of LeRobot's, and tells less.

Its config.json names no cameras: there is one, and its frames may have any size. Two fields, which LeRobot's
folders have too, may be added to say more: ``input_features`` the camera's name and size, ``unnorm_key`` the
data set whose actions the robot's are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.action_statistics import read_action_statistics
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind, read_features
from vla_simd_ros.checkpoints.normalization import Normalizer, NormMode, Statistics, make_normalizer
from vla_simd_ros.checkpoints.processors import Processors
from vla_simd_ros.checkpoints.prompt import Prompt

OPENVLA = "openvla"
CAMERA = "image"
"""The camera where ``input_features`` does not name it."""
PROMPT = Prompt(
    begin="<s>", before="In: What action should the robot take to ", after="?\nOut:", cleaned=str.lower
)
_SIZES = "image_sizes"
_NO_STATISTICS: Statistics = {}


def is_openvla(config: dict[str, Any]) -> bool:
    """Whether config.json is that of a published OpenVLA folder."""
    return config.get("model_type") == OPENVLA and "type" not in config


def read_openvla_features(
    folder: Path, config: dict[str, Any]
) -> tuple[dict[str, Feature], dict[str, Feature]]:
    """The camera, and the action as wide as the statistics of the chosen data set."""
    where = folder / "config.json"
    if config.get("input_features") is not None:
        inputs = read_features(config, "input_features", where)
        kinds = [feature.kind for feature in inputs.values()]
        if kinds != [FeatureKind.VISUAL]:
            raise CheckpointError(
                f"{where}: input_features are {list(inputs)}, expected one camera and nothing else"
            )
    else:
        name = f"observation.images.{CAMERA}"
        inputs = {name: Feature(name, FeatureKind.VISUAL, (3, *_tower_size(config, where)))}
    width = read_action_statistics(folder, config).width
    return inputs, {"action": Feature("action", FeatureKind.ACTION, (width,))}


def openvla_processors(inputs: dict[str, Feature]) -> Processors:
    """Frames are taken as they are, and the instruction becomes part of a question."""
    normalizers = {name: _identity(feature) for name, feature in inputs.items()}
    return Processors(normalizers, {}, prompt=PROMPT)


def _identity(feature: Feature) -> Normalizer:
    return make_normalizer(feature, NormMode.IDENTITY, _NO_STATISTICS, 0.0, "")


def _tower_size(config: dict[str, Any], where: Path) -> tuple[int, int]:
    sizes = json_file.field(config, _SIZES, list, where)
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise CheckpointError(
            f"{where}: {_SIZES} is {sizes}, expected the pixels of each vision tower's side"
        )
    return sizes[0], sizes[0]
