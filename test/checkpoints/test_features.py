from __future__ import annotations

from typing import Any

import pytest

from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind, read_features


def read(entry: Any) -> dict[str, Feature]:
    return read_features({"input_features": {"observation.x": entry}}, "input_features", "config.json")


def test_reads_features_in_order() -> None:
    config = {
        "input_features": {
            "observation.images.b": {"type": "VISUAL", "shape": [3, 4, 5]},
            "observation.images.a": {"type": "VISUAL", "shape": [3, 4, 5]},
            "observation.state": {"type": "STATE", "shape": [7]},
        }
    }
    features = read_features(config, "input_features", "config.json")

    assert list(features) == ["observation.images.b", "observation.images.a", "observation.state"]
    assert features["observation.state"] == Feature("observation.state", FeatureKind.STATE, (7,))
    assert features["observation.images.a"].channels == 3


@pytest.mark.parametrize(
    ("key", "camera"),
    [
        ("observation.images.wrist", "wrist"),
        ("observation.images.left.wrist", "left.wrist"),
        ("observation.image", "image"),
    ],
)
def test_camera_names(key: str, camera: str) -> None:
    assert Feature(key, FeatureKind.VISUAL, (3, 4, 5)).camera == camera


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"type": "SMELL", "shape": [3]}, "unknown type 'SMELL', expected one of VISUAL, STATE"),
        ({"type": "VISUAL", "shape": [3, 4]}, r"shape is \[3, 4\], expected \[channels, height, width\]"),
        ({"type": "STATE", "shape": [3, 4]}, r"shape is \[3, 4\], expected one dimension"),
        ({"type": "STATE", "shape": [0]}, r"shape is \[0\], expected positive integers"),
        ({"type": "STATE", "shape": [1.5]}, r"shape is \[1.5\], expected positive integers"),
        ({"type": "STATE"}, "'shape' is missing"),
        ({"shape": [3]}, "'type' is missing"),
        ([3], "is a list, expected an object"),
    ],
)
def test_names_what_is_wrong(entry: Any, complaint: str) -> None:
    with pytest.raises(CheckpointError, match=complaint) as caught:
        read(entry)
    assert "config.json: input_features['observation.x']" in str(caught.value)


def test_missing_group() -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: 'output_features' is missing"):
        read_features({}, "output_features", "config.json")
