"""The policy node with checkpoints from disk: good ones run, bad ones fail configuration and say why."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from safetensors.numpy import load_file, save_file
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from vla_simd_ros.msg import ActionChunk

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.messages import nanoseconds, stamp
from vla_simd_ros.nodes.policy_node import PolicyNode

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
JOINTS = ["pan", "lift", "grip"]
SIZES = {
    "dim_model": 32, "heads": 2, "feedforward": 48, "encoder_layers": 1, "decoder_layers": 1, "chunk_size": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small ACT and IMPACT folders."""
    root = tmp_path_factory.mktemp("checkpoints")
    for kind in ("act", "impact"):
        options = Options(cameras=(Camera("front", 64, 96),), state_dim=3, action_dim=3, sizes=SIZES, seed=3)
        make_checkpoint(kind, root / kind, options)
    return {kind: root / kind for kind in ("act", "impact")}


def node_with(ros: Any, checkpoint: Path, **changes: Any) -> Any:
    return ros.add(PolicyNode, checkpoint=str(checkpoint), joints=JOINTS, threads=1, **changes)


@pytest.mark.parametrize("kind", ["act", "impact"])
def test_a_checkpoint_runs_from_frames_to_chunks(ros: Any, checkpoints: dict[str, Path], kind: str) -> None:
    node = node_with(ros, checkpoints[kind], instruction="pick up the tape")
    assert node.trigger_configure() == SUCCESS
    chunks: list[ActionChunk] = ros.collect(ActionChunk, "action_chunk", qos.CHUNK)
    camera = ros.publisher(Image, "camera/front/image_raw", qos.STATE)
    joints = ros.publisher(JointState, "joint_states", qos.STATE)
    assert node.trigger_activate() == SUCCESS
    state = JointState(name=JOINTS, position=[0.1, 0.2, 0.3])
    frame = Image(height=64, width=96, encoding="rgb8", step=288, data=bytes(range(256)) * 72)
    state.header.stamp = frame.header.stamp = stamp(ros.now_ns)
    joints.publish(state)
    ros.settle(3)
    camera.publish(frame)
    ros.spin_until(lambda: chunks, "a chunk")
    assert (chunks[0].policy, chunks[0].horizon) == (kind, 5)
    assert nanoseconds(chunks[0].header.stamp) == ros.now_ns
    assert np.isfinite(chunks[0].actions).all() and len(set(chunks[0].actions)) > 5
    assert chunks[0].timing.query_ms > 0.0


def test_an_instruction_longer_than_32_tokens_is_cut_and_the_policy_runs_on(
    ros: Any, checkpoints: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    node = node_with(ros, checkpoints["impact"], instruction="go")
    assert node.trigger_configure() == SUCCESS
    assert node.trigger_activate() == SUCCESS
    ros.publisher(String, "instruction", qos.LATCHED).publish(String(data="put the tape " * 40))
    output: list[str] = []

    def reported() -> bool:
        output.append(capfd.readouterr().err)
        return "longer than 32 tokens" in "".join(output)

    ros.spin_until(reported, "the report")


def missing(folder: Path) -> None:
    shutil.rmtree(folder)


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{not json")


def wrong_type(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "type": "walker"}))


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])


def rewritten(change: Callable[[dict[str, np.ndarray], str], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        name = next(name for name in tensors if name.endswith("action_head.weight"))
        change(tensors, name)
        save_file(tensors, folder / "model.safetensors")

    return damage


def nan_weight(tensors: dict[str, np.ndarray], name: str) -> None:
    tensors[name] = np.full_like(tensors[name], np.nan)


def wrong_shape(tensors: dict[str, np.ndarray], name: str) -> None:
    tensors[name] = tensors[name][:, :-1].copy()


def without_tensor(tensors: dict[str, np.ndarray], name: str) -> None:
    del tensors[name]


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (missing, "bad"),
    (without_config, r"config\.json"),
    (broken_config, r"config\.json"),
    (wrong_type, "walker"),
    (truncated, r"model\.safetensors"),
    (rewritten(nan_weight), r"action_head\.weight.*(finite|nan|NaN)"),
    (rewritten(wrong_shape), r"action_head\.weight.*31"),
    (rewritten(without_tensor), r"action_head\.weight"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_checkpoint_fails_configuration_and_a_good_one_follows(
    ros: Any,
    checkpoints: dict[str, Path],
    tmp_path: Path,
    damage: Callable[[Path], None],
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(checkpoints["act"], bad)
    damage(bad)
    node = node_with(ros, bad)
    assert node.trigger_configure() == FAILURE
    error = capfd.readouterr().err
    assert "configure failed" in error and "Traceback" not in error
    assert re.search(words, error)
    assert node.set_parameters([Parameter("checkpoint", value=str(checkpoints["act"]))])[0].successful
    assert node.trigger_configure() == SUCCESS


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("isa", "mmx", "mmx"), ("threads", 5000, "threads: got 5000"), ("cameras", "top", "the checkpoint has")],
)
def test_settings_that_the_engine_or_policy_cannot_have_fail_configuration(
    ros: Any,
    checkpoints: dict[str, Path],
    name: str,
    value: Any,
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    node = ros.add(PolicyNode, **{"checkpoint": str(checkpoints["act"]), "joints": JOINTS, name: value})
    assert node.trigger_configure() == FAILURE
    error = capfd.readouterr().err
    assert words in error and "Traceback" not in error
