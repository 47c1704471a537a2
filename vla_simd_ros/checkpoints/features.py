"""The inputs and outputs that a checkpoint declares."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.json_file import describe, field

_CAMERA_PREFIX = "observation.images."
_IMAGE_RANK = 3


class FeatureKind(enum.Enum):
    """What a feature is; the kind decides its normalization mode."""

    VISUAL = "VISUAL"
    STATE = "STATE"
    ENV = "ENV"
    ACTION = "ACTION"
    REWARD = "REWARD"
    LANGUAGE = "LANGUAGE"


@dataclass(frozen=True)
class Feature:
    """One input or output. ``shape`` is as stored: ``(channels, height, width)`` for an image."""

    name: str
    kind: FeatureKind
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        """Length of this feature's statistics: the channels of an image, the width of a vector."""
        return self.shape[0]

    @property
    def camera(self) -> str:
        """The camera's name, see `camera_name`."""
        return camera_name(self.name)


def camera_name(key: str) -> str:
    """The name of the camera behind a feature's key: without ``observation.images.``, or its last part."""
    if key.startswith(_CAMERA_PREFIX):
        return key[len(_CAMERA_PREFIX) :]
    return key.rsplit(".", 1)[-1]


def read_features(config: dict[str, Any], group: str, where: object) -> dict[str, Feature]:
    """The features in ``config[group]``, by key and in the stored order.

    Raises `CheckpointError` for an unknown type or a shape that its type cannot have.
    """
    features = {}
    for name, entry in field(config, group, dict, where).items():
        place = f"{where}: {group}['{name}']"
        if not isinstance(entry, dict):
            raise CheckpointError(f"{place} is {describe(entry)}, expected an object with type and shape")
        kind = _kind(field(entry, "type", str, place), place)
        features[name] = Feature(name, kind, _shape(field(entry, "shape", list, place), kind, place))
    return features


def _kind(text: str, place: str) -> FeatureKind:
    try:
        return FeatureKind(text)
    except ValueError:
        known = ", ".join(kind.value for kind in FeatureKind)
        raise CheckpointError(f"{place}: unknown type '{text}', expected one of {known}") from None


def _shape(values: list[Any], kind: FeatureKind, place: str) -> tuple[int, ...]:
    if not all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values):
        raise CheckpointError(f"{place}: shape is {values}, expected positive integers")
    if kind is FeatureKind.VISUAL and len(values) != _IMAGE_RANK:
        raise CheckpointError(f"{place}: shape is {values}, expected [channels, height, width]")
    if kind is not FeatureKind.VISUAL and len(values) != 1:
        raise CheckpointError(f"{place}: shape is {values}, expected one dimension")
    return tuple(values)
