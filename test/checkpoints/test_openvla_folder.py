from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints import CheckpointError
from vla_simd_ros.checkpoints.features import FeatureKind
from vla_simd_ros.checkpoints.openvla_folder import is_openvla, openvla_processors, read_openvla_features

CONFIG: dict[str, Any] = {
    "model_type": "openvla",
    "image_sizes": [224, 224],
    "norm_stats": {"arm": {"action": {"q01": [0.0] * 7, "q99": [1.0] * 7}}},
}


def camera(**shape: Any) -> dict[str, Any]:
    return {"input_features": {f"observation.images.{name}": entry for name, entry in shape.items()}}


def test_a_published_folder_has_no_type() -> None:
    assert is_openvla(CONFIG)
    assert not is_openvla({**CONFIG, "type": "act"})
    assert not is_openvla({"type": "act"})


def test_a_camera_that_nobody_names_has_the_towers_size(tmp_path: Path) -> None:
    inputs, outputs = read_openvla_features(tmp_path, CONFIG)
    (only,) = inputs.values()
    assert (only.camera, only.shape, only.kind) == ("image", (3, 224, 224), FeatureKind.VISUAL)
    assert outputs["action"].shape == (7,)


def test_a_named_camera_has_its_own_size(tmp_path: Path) -> None:
    named = camera(front={"type": "VISUAL", "shape": [3, 480, 640]})
    inputs, _ = read_openvla_features(tmp_path, {**CONFIG, **named})
    (only,) = inputs.values()
    assert (only.camera, only.shape) == ("front", (3, 480, 640))


def test_instructions_become_questions(tmp_path: Path) -> None:
    inputs, _ = read_openvla_features(tmp_path, CONFIG)
    processors = openvla_processors(inputs)
    assert processors.prompt is not None
    assert processors.prompt.begin == "<s>"
    written = processors.prompt.written("Open the Drawer")
    assert written == "In: What action should the robot take to open the drawer?\nOut:"
    (normalizer,) = processors.normalizers.values()
    assert (normalizer.offset.tolist(), normalizer.divisor.tolist()) == ([0, 0, 0], [1, 1, 1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_sizes": []}, r"image_sizes is \[\], expected the pixels of each vision tower's side"),
        ({"image_sizes": ["224"]}, "expected the pixels of each vision tower's side"),
        (camera(a={"type": "STATE", "shape": [3]}), "expected one camera and nothing else"),
        (
            camera(a={"type": "VISUAL", "shape": [3, 2, 2]}, b={"type": "VISUAL", "shape": [3, 2, 2]}),
            "expected one camera and nothing else",
        ),
        ({"norm_stats": {}}, "statistics of 0 data sets"),
    ],
    ids=str,
)
def test_folders_that_do_not_fit_are_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_openvla_features(tmp_path, {**CONFIG, **fields})
