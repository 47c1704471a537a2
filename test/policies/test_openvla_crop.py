"""The middle of a frame, compared with interpolation by definition, and the policy that sees it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import with_config

from vla_simd_ros.checkpoints import Checkpoint, CheckpointError, load_checkpoint
from vla_simd_ros.executors.simd_executor import SimdExecutor
from vla_simd_ros.graph.ir import Array
from vla_simd_ros.inference import Observation, Policy
from vla_simd_ros.policies.openvla import OpenVlaPolicy
from vla_simd_ros.policies.openvla_crop import CentreCrop

Open = Callable[..., Checkpoint]


def interpolated(frame: Array, area: float, side: int) -> Array:
    """In float64, one line after the other, before it becomes bytes."""
    share = area**0.5

    def along(values: Array) -> Array:
        last = len(values) - 1
        places = np.linspace((1 - share) / 2 * last, (1 + share) / 2 * last, side)
        return np.interp(places, np.arange(last + 1), values)

    lines = np.apply_along_axis(along, 1, frame.astype(np.float64))
    return np.asarray(np.apply_along_axis(along, 0, lines)) * 255.5 / 255


@pytest.mark.parametrize("size", [(224, 224), (48, 64), (7, 31)])
@pytest.mark.parametrize("area", [0.9, 0.5, 1.0])
def test_it_interpolates_between_the_outermost_pixels(size: tuple[int, int], area: float) -> None:
    frame = np.random.default_rng(size[0]).integers(0, 256, (*size, 3)).astype(np.uint8)
    exact = interpolated(frame, area, 40)
    ours = CentreCrop(area, *size, 40)(frame)
    assert (ours.dtype, ours.shape) == (np.uint8, (40, 40, 3))
    # float32 may fall on the other side of a whole number.
    clear = np.abs(exact - np.round(exact)) > 1e-2
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(ours[clear], np.minimum(np.floor(exact), 255)[clear])
    assert np.abs(ours - exact)[~clear].max(initial=0) < 1.01


def test_all_of_a_frame_in_its_own_size_stays_as_it_is() -> None:
    frame = np.arange(16 * 16 * 3).reshape(16, 16, 3).astype(np.uint8)
    np.testing.assert_array_equal(CentreCrop(1.0, 16, 16, 16)(frame), frame)


def opened(checkpoint: Checkpoint, folder: Path, height: int, width: int, **fields: Any) -> Checkpoint:
    """A copy for frames of another size."""
    shutil.copytree(checkpoint.folder, folder)
    feature = {"observation.images.image": {"type": "VISUAL", "shape": [3, height, width]}}
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "input_features": feature, **fields}))
    return load_checkpoint(folder)


def test_the_policy_sees_the_middle(checkpoint: Open, tmp_path: Path) -> None:
    """As one that sees all is shown the middle."""
    given = checkpoint("openvla")
    cropped = opened(given, tmp_path / "cropped", 20, 28, center_crop_area=0.9)
    whole = opened(given, tmp_path / "whole", 16, 16)
    frame = np.random.default_rng(3).integers(0, 256, (20, 28, 3)).astype(np.uint8)
    actions = []
    for each, shown in ((cropped, frame), (whole, CentreCrop(0.9, 20, 28, 16)(frame))):
        policy = Policy(each, SimdExecutor(threads=1))
        policy.set_instruction("put the tape into the box")
        policy.warm_up()
        actions.append(policy.query(Observation({"image": shown})).actions)
    np.testing.assert_array_equal(*actions)


@pytest.mark.parametrize(
    ("area", "message"),
    [
        (0.0, "center_crop_area is 0.0, expected a part of a frame's area, above 0 and up to 1"),
        (1.5, "center_crop_area is 1.5"),
        ("0.9", "'center_crop_area' is a string"),
    ],
    ids=str,
)
def test_an_area_that_is_none(checkpoint: Open, area: object, message: str) -> None:
    changed = with_config(checkpoint("openvla"), center_crop_area=area)
    with pytest.raises(CheckpointError, match=message):
        OpenVlaPolicy(changed)
