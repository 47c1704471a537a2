"""An evaluation through the nodes as a user runs it, with a small random policy and little time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint

pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")
pytest.importorskip("mujoco", reason="needs the simulation's packages: pip install 'vla_simd_ros[sim]'")

from vla_simd_ros.evaluation.request import Request
from vla_simd_ros.evaluation.through_nodes import NodeRequest
from vla_simd_ros.nodes.demo_recording import Decoding
from vla_simd_ros.nodes.demo_run import DemoError
from vla_simd_ros.nodes.evaluation_run import Scene, demo_settings, scene_of, together
from vla_simd_ros.sim.tasks import INSTRUCTIONS

PATIENCE = 240.0
SIZES = {
    "dim_model": 32,
    "heads": 2,
    "feedforward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "chunk_size": 30,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "act"
    cameras = (Camera("front", 48, 64), Camera("wrist", 48, 64))
    make_checkpoint("act", folder, Options(cameras=cameras, sizes=SIZES))
    return folder


def run(checkpoint: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vla_simd_ros.cli.__main__", "evaluate", str(checkpoint), "--ros"]
    whole = [*command, "--logs", str(out / "logs"), "--threads", "1", *options]
    return subprocess.run(whole, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_episodes_through_the_nodes(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    options = ("--episodes", "2", "--seconds", "3", "--mode", "lagged", "--horizon", "20", "--seed", "40")
    done = run(checkpoint, tmp_path, *options, "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    content: dict[str, Any] = json.loads(file.read_text())
    assert content["measured_with"]["through"] == "nodes, in real time"
    (condition,) = content["conditions"]
    assert condition["settings"]["execution"]["mode"] == "lagged"
    first, second = condition["episodes"]
    assert (first["seed"], second["seed"]) == (40, 41)
    assert [first["instruction"], second["instruction"]] == list(INSTRUCTIONS[:2])
    for episode in (first, second):
        # What a random policy does is chance; that it was asked and obeyed is not.
        assert episode["success"] or episode["failure"].startswith("not within 90 steps")
        assert 0 < episode["steps"] <= 90
        assert episode["queries"] > 0 and episode["executed_rows"] > 0
        assert episode["success"] or len(episode["state"]["joints"]) == 6
    assert "| act " in done.stdout


def test_settings_of_the_engine_become_parameters() -> None:
    asked = NodeRequest(Request(checkpoints=("/a",), changes={"threads": 2}), 64, 48, "/config", "/logs")
    parameters = demo_settings(asked).parameters
    assert parameters["robot_sim_node"] == {"image_width": "64", "image_height": "48"}
    assert parameters["policy_node"] == {"settings": "auto", "threads": "2"}


def test_a_setting_that_the_policy_node_does_not_have() -> None:
    request = Request(checkpoints=("/a",), changes={"attention": "materialized"})
    with pytest.raises(DemoError, match="policy_node has no parameter for the setting attention, expected"):
        demo_settings(NodeRequest(request, 64, 48, "/config", "/logs"))


def test_what_the_simulation_says_of_its_scene() -> None:
    values = dict.fromkeys(INSTRUCTIONS, "false")
    values |= {INSTRUCTIONS[2]: "true", "scene_seed": "7", "resets": "3"}
    assert scene_of(values) == Scene(7, 3, frozenset([INSTRUCTIONS[2]]))


def test_what_queries_tell_of_their_tokens_is_counted_together() -> None:
    first = Decoding(3, 60, 20.0, 100.0, 600.0, "confident", False)
    second = Decoding(1, 60, 60.0, 300.0, 300.0, "fixed_point", True)
    both = together([first, second])
    assert both is not None
    assert (both.passes, both.tokens, both.slowest, both.fastest) == (4, 120, 300.0, 600.0)
    assert both.seconds == pytest.approx(0.1 + 0.2)
    assert together([]) is None
