"""A checkpoint folder in memory: configuration, features, weights, normalization and tokenizer."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind, camera_name, read_features
from vla_simd_ros.checkpoints.json_file import read_json_object
from vla_simd_ros.checkpoints.normalization import Normalizer, Unnormalizer
from vla_simd_ros.checkpoints.openvla_folder import (
    OPENVLA,
    is_openvla,
    openvla_processors,
    read_openvla_features,
)
from vla_simd_ros.checkpoints.processors import Processors, read_processors
from vla_simd_ros.checkpoints.sharded import INDEX, ShardedTensors
from vla_simd_ros.checkpoints.tensors import Array, TensorFile
from vla_simd_ros.checkpoints.tokenizer import Tokenizer, load_tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TEXT_ENCODER_FOLDER = "text_encoder"
VISION_ENCODER_FOLDER = "vision_encoder"
DEFAULT_MAX_TOKENS = 32
# The fields that policies keep the longest instruction in, and that of the text encoder's own folder.
_TOKEN_LIMITS = ("tokenizer_max_length", "max_language_tokens")
SHARED_WEIGHTS = "shared_weights"
"""Field of config.json: the folder, seen from this one, of a checkpoint that has what is missing."""
_EMPTY_CAMERA = "observation.images.empty_camera_"
_NAMED_MODELS = ("language_backbone", "vlm_model_name", "text_tokenizer_name")


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint folder. Weights stay in the file until they are asked for."""

    folder: Path
    type: str
    config: dict[str, Any]
    features_in: dict[str, Feature]
    features_out: dict[str, Feature]
    weights: TensorFile | ShardedTensors
    processors: Processors

    @property
    def tensors(self) -> Mapping[str, Array]:
        """All weights by name, read when they are looked up; floats as float32."""
        return self.weights

    @property
    def normalizers(self) -> Mapping[str, Normalizer]:
        """Input normalization by feature key."""
        return self.processors.normalizers

    @property
    def unnormalizers(self) -> Mapping[str, Unnormalizer]:
        """Output un-normalization by feature key."""
        return self.processors.unnormalizers

    @property
    def rename_map(self) -> Mapping[str, str]:
        """Observation keys that the policy knows under another name: the robot's key to the feature's."""
        return self.processors.rename_map

    @property
    def cameras(self) -> dict[str, Feature]:
        """The image inputs by camera name, in the policy's order.

        A camera that the preprocessor renames has the robot's name, not its feature's. Empty cameras, which
        stand for views that the policy was trained without, are none.
        """
        empty = {f"{_EMPTY_CAMERA}{index}" for index in range(self.option("empty_cameras", int, 0))}
        robot_keys = {new: old for old, new in self.rename_map.items()}
        images = (
            f for f in self.features_in.values() if f.kind is FeatureKind.VISUAL and f.name not in empty
        )
        return {camera_name(robot_keys.get(feature.name, feature.name)): feature for feature in images}

    def option(self, name: str, kind: builtins.type, default: Any = None) -> Any:
        """Field ``name`` of config.json, checked to be of JSON type ``kind``.

        ``default`` stands in for an absent field; without one the field is required. A field that is
        null counts as absent.
        """
        if default is not None and self.config.get(name) is None:
            return default
        return json_file.field(self.config, name, kind, self.folder / CONFIG)

    def text_encoder(self) -> tuple[dict[str, Any], TensorFile]:
        """Configuration and weights of a text encoder kept in the folder ``text_encoder/``.

        Raises `CheckpointError` that says what has to be put where if there is none.
        """
        folder = self.folder / TEXT_ENCODER_FOLDER
        if not (folder / WEIGHTS).is_file():
            raise CheckpointError(
                f"{self.weights.path} holds no text encoder (model.text.model.*), nor does {folder}: "
                f"put the text encoder's {CONFIG} and {WEIGHTS} (tensors shared.weight, encoder.block.*) "
                f"into {folder}"
            )
        return read_json_object(folder / CONFIG), TensorFile(folder / WEIGHTS)

    def _advice(self) -> str:
        """Whose tokenizer has to be put where: of the models that config.json names and that are not here."""
        names = ((field, self.config.get(field)) for field in _NAMED_MODELS)
        return "".join(
            f"; put those of '{name}' ({field} of {CONFIG}) into {self.folder}"
            for field, name in names
            if isinstance(name, str) and self.named_folder(field) is None
        )

    def named_folder(self, field: str) -> Path | None:
        """The folder of a model that ``field`` of config.json names, if it is here: inside this one, or where
        its path leads."""
        name = self.config.get(field)
        if not isinstance(name, str) or not name:
            return None
        return next((place for place in (self.folder / name, Path(name)) if place.is_dir()), None)

    def tokenizer(self) -> Tokenizer:
        """The instruction's tokenizer, from its files in the folder or in that of its text encoder."""
        default = self.processors.max_tokens or DEFAULT_MAX_TOKENS
        limit = next((self.option(f, int) for f in _TOKEN_LIMITS if self.config.get(f) is not None), default)
        folders = [self.folder, self.folder / TEXT_ENCODER_FOLDER]
        folders += [folder for folder in map(self.named_folder, _NAMED_MODELS) if folder is not None]
        ending = "\n" if self.processors.new_line else ""
        return load_tokenizer(folders, limit, ending, self._advice(), self.processors.prompt)


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Open a LeRobot ``pretrained_model`` folder, or a published one of OpenVLA. Raises `CheckpointError`
    naming what is wrong with it."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "is a file, expected a folder" if folder.exists() else "no such folder"
        raise CheckpointError(f"{folder}: {what}")
    where = folder / CONFIG
    config = read_json_object(where)
    if is_openvla(config):
        return _load_openvla(folder, config)
    kind = json_file.field(config, "type", str, where)
    features_in = read_features(config, "input_features", where)
    features_out = read_features(config, "output_features", where)
    shared = shared_folder(folder, config)
    weights = TensorFile(folder / WEIGHTS, TensorFile(shared / WEIGHTS) if shared else None)
    processors = read_processors(folder, config, weights, features_in, features_out)
    return Checkpoint(folder, kind, config, features_in, features_out, weights, processors)


def shared_folder(folder: Path, config: dict[str, Any]) -> Path | None:
    """Where the tensors are that a checkpoint in ``folder`` lacks, if it leaves some to another one."""
    if config.get(SHARED_WEIGHTS) is None:
        return None
    name: str = json_file.field(config, SHARED_WEIGHTS, str, folder / CONFIG)
    return folder / name


def _load_openvla(folder: Path, config: dict[str, Any]) -> Checkpoint:
    inputs, outputs = read_openvla_features(folder, config)
    index = folder / INDEX
    weights = ShardedTensors(index) if index.is_file() else TensorFile(folder / WEIGHTS)
    return Checkpoint(folder, OPENVLA, config, inputs, outputs, weights, openvla_processors(inputs))
