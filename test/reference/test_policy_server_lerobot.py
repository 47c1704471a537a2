"""The policy server driven by LeRobot's own robot client, with a robot that only notes what it is told."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.inference import Observation, Policy

JOINTS = ["shoulder_pan.pos", "shoulder_lift.pos", "gripper.pos"]
SIZES = {
    "chunk_size": 10,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dim_model": 64,
    "heads": 4,
    "feedforward": 64,
}
PATIENCE_S = 60


class NotingRobot:
    """Shows a picture that never changes and joints that follow what they are told."""

    def __init__(self, enough: int) -> None:
        self.observation_features = {**dict.fromkeys(JOINTS, float), "front": (64, 96, 3)}
        self.action_features = dict.fromkeys(JOINTS, float)
        self.image = np.random.default_rng(1).integers(0, 256, (64, 96, 3), dtype=np.uint8)
        self._enough = enough
        self.done = threading.Event()
        self.joints = dict.fromkeys(JOINTS, 0.5)
        self.actions: list[list[float]] = []

    def connect(self) -> None:
        pass

    def disconnect(self) -> None:
        pass

    def get_observation(self) -> dict[str, Any]:
        return {**self.joints, "front": self.image}

    def send_action(self, action: dict[str, float]) -> dict[str, float]:
        self.actions.append([action[joint] for joint in JOINTS])
        if len(self.actions) >= self._enough:
            self.done.set()
        return action


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Any]:
    from vla_simd_ros.server.catalog import FixedPolicy
    from vla_simd_ros.server.policy_server import PolicyServer, PolicyServicer, ServerSettings

    servers = []

    def serve(policy_type: str) -> SimpleNamespace:
        folder = tmp_path / policy_type
        make_checkpoint(
            policy_type,
            folder,
            Options(seed=5, cameras=(Camera("front", 64, 96),), state_dim=3, action_dim=3, sizes=SIZES),
        )
        settings = ServerSettings(port=0, observation_timeout_s=0.5)
        server = PolicyServer(PolicyServicer(FixedPolicy(folder, Policy.load), settings), settings)
        server.start()
        servers.append(server)
        return SimpleNamespace(folder=folder, address=f"127.0.0.1:{server.port}")

    yield serve
    for server in servers:
        server.stop()


def run_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, robot: NotingRobot, **changes: Any) -> bool:
    """Run LeRobot's client as its own command does, until the robot has enough; whether it could start."""
    monkeypatch.chdir(tmp_path)  # the client writes a log where it is imported

    from lerobot.async_inference import robot_client
    from lerobot.async_inference.configs import RobotClientConfig

    monkeypatch.setattr(robot_client, "make_robot_from_config", lambda config: robot)
    fields: dict[str, Any] = {
        "policy_type": "act",
        "pretrained_name_or_path": "someone/policy",
        "robot": SimpleNamespace(),
        "actions_per_chunk": 10,
        "aggregate_fn_name": "latest_only",
        "fps": 100,
        "task": "wave at the camera",
    }
    config = RobotClientConfig(**{**fields, **changes})
    client = robot_client.RobotClient(config)
    if not client.start():
        client.stop()
        return False
    threads = [
        threading.Thread(target=client.receive_actions, daemon=True),
        threading.Thread(target=client.control_loop, args=(config.task,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    assert robot.done.wait(PATIENCE_S), f"the robot was told {len(robot.actions)} actions only"
    client.shutdown_event.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    client.stop()
    return True


def test_the_robot_is_told_what_the_policy_says(
    served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = served("act")
    robot = NotingRobot(enough=60)
    assert run_client(monkeypatch, tmp_path, robot, server_address=server.address)
    query = Policy.load(server.folder).query(Observation({"front": robot.image}, np.full(3, 0.5, np.float32)))
    # The observation never changes, so every action is a row of one chunk.
    rows = {tuple(map(float, row)) for row in query.actions}
    assert {tuple(action) for action in robot.actions} <= rows
    assert robot.actions[:3] == query.actions[:3].tolist()


def test_the_task_is_the_instruction(served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = served("impact")
    robot = NotingRobot(enough=3)
    assert run_client(monkeypatch, tmp_path, robot, server_address=server.address, policy_type="impact")
    policy = Policy.load(server.folder)
    policy.set_instruction("wave at the camera")
    query = policy.query(Observation({"front": robot.image}, np.full(3, 0.5, np.float32)))
    assert robot.actions == query.actions[:3].tolist()


def test_what_is_not_served_is_an_error_at_the_client(
    served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = served("act")
    with caplog.at_level(logging.ERROR):
        started = run_client(
            monkeypatch, tmp_path, NotingRobot(1), server_address=server.address, policy_type="smolvla"
        )
    assert not started


def test_the_pickles_hold_lerobots_own_fields() -> None:
    from lerobot.async_inference.helpers import RemotePolicyConfig, TimedAction, TimedObservation

    def names(kind: Any) -> list[str]:
        return [field.name for field in dataclasses.fields(kind)]

    assert names(TimedAction) == ["timestamp", "timestep", "action"]
    assert names(TimedObservation) == ["timestamp", "timestep", "observation", "must_go"]
    assert set(names(RemotePolicyConfig)) == {
        "policy_type",
        "pretrained_name_or_path",
        "lerobot_features",
        "actions_per_chunk",
        "device",
        "rename_map",
    }
