"""Policies that spell their actions and come with the package: a teacher and what was distilled from it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.evaluation.episodes import plan
from vla_simd_ros.evaluation.execution import Delay, Execution
from vla_simd_ros.evaluation.policy_pilot import PolicyPilot
from vla_simd_ros.evaluation.request import task_limits
from vla_simd_ros.evaluation.rollout import run_episode
from vla_simd_ros.inference import Policy
from vla_simd_ros.sim.demo_policy import TRAINED, image_size
from vla_simd_ros.sim.scene import CAMERAS
from vla_simd_ros.sim.tasks import INSTRUCTIONS

TOKENS = TRAINED.with_name("demo_tokens")
FOLDERS = [TOKENS / name for name in ("teacher", "student", "fine_tuned")]
MOST_BYTES = 6e6


def test_they_take_little_room_beside_the_encoder_that_they_share() -> None:
    assert sum(file.stat().st_size for file in TOKENS.rglob("*") if file.is_file()) < MOST_BYTES
    encoder = load_checkpoint(TRAINED).tensors
    for folder in FOLDERS:
        checkpoint = load_checkpoint(folder)
        assert checkpoint.type == "impact_tokens" and list(checkpoint.cameras) == list(CAMERAS)
        assert image_size(checkpoint) == (128, 96)
        record = json.loads((folder / "train_config.json").read_text())
        assert record["step"] == record["training"]["steps"]
        assert not any("/" in name for name in record["data"])
        name = "model.encoder.layers.0.linear1.weight"
        np.testing.assert_array_equal(checkpoint.tensors[name], encoder[name])


def test_the_student_does_what_it_is_told_and_leaves_early() -> None:
    pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")
    from vla_simd_ros.evaluation.task_world import TaskWorld

    world = TaskWorld(128, 96)
    policy = Policy.load(TOKENS / "student", threads=1, decoder="early_exit")
    pilot = PolicyPilot(policy, Execution(threshold=2, delay=Delay(30.0)))
    limits = task_limits(world.period_ns)
    results = [run_episode(world, pilot, episode, limits) for episode in plan(3, INSTRUCTIONS)]
    assert sum(result.success for result in results) >= 2
    decodings = [result.counts.decoding for result in results]
    assert all(found is not None and found.tokens > 8 * found.passes for found in decodings)
    world.close()
    policy.close()
