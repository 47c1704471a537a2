"""The trained policy that comes with the package."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.inference import Policy
from vla_simd_ros.observation import Observation
from vla_simd_ros.sim.demo_policy import TRAINED, image_size
from vla_simd_ros.sim.scene import CAMERAS
from vla_simd_ros.sim.tasks import INSTRUCTIONS, TaskScene, shoulder_axis

MOST_BYTES = 40e6


def test_it_is_complete_and_small_enough() -> None:
    checkpoint = load_checkpoint(TRAINED)
    assert sum(file.stat().st_size for file in TRAINED.iterdir()) < MOST_BYTES
    assert list(checkpoint.cameras) == list(CAMERAS)
    assert image_size(checkpoint) == (128, 96)
    record = json.loads((TRAINED / "train_config.json").read_text())
    assert record["step"] == record["training"]["steps"]
    assert not any("/" in name for name in record["data"])


def test_it_goes_where_it_is_told_to() -> None:
    pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")
    scene = TaskScene(width=128, height=96)
    scene.reset(3)
    seen = {camera: scene.robot.render(camera).image for camera in CAMERAS}
    observation = Observation(seen, scene.robot.joint_positions.astype(np.float32))
    policy = Policy.load(TRAINED, threads=1)
    ends = {}
    for instruction in INSTRUCTIONS:
        policy.set_instruction(instruction)
        ends[instruction] = policy.query(observation).actions[-1, 0]
    # The first joint, which counts clockwise, turns the arm to the cube that is named, whatever the pad.
    for number, colour in enumerate(("red", "green", "blue")):
        x, y = scene.robot.snapshot().cubes[number, :2] - shoulder_axis()
        turns = [end for instruction, end in ends.items() if colour in instruction]
        assert abs(np.mean(turns) + np.arctan2(y, x)) < 0.25, colour
    scene.robot.close()
