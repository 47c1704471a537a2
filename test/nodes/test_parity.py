"""One recording through the nodes and through the library: the same chunks and commands, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import StoragePlugin, Writer
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import UInt64
from trajectory_msgs.msg import JointTrajectory
from vla_simd_ros.msg import ActionChunk, ControlStep, ExecutorState

from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.cli.__main__ import main
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.chunk_executor_node import ChunkExecutorNode
from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from
from vla_simd_ros.nodes.messages import nanoseconds, stamp
from vla_simd_ros.nodes.policy_node import PolicyNode
from vla_simd_ros.recording.bag import Bag, known_types
from vla_simd_ros.recording.replay_control import replay_commands

SUCCESS = TransitionCallbackReturn.SUCCESS
MS = 1_000_000
PERIOD = 100 * MS
JOINTS = ["pan", "lift", "grip"]
CAMERAS = ("front", "wrist")
SIZES = {
    "dim_model": 32, "heads": 2, "feedforward": 48, "encoder_layers": 1, "decoder_layers": 1, "chunk_size": 6,
}  # fmt: skip
POLICY = {"joints": JOINTS, "threads": 1, "instruction": "pick up the tape", "step_period": 0.05}
EXECUTOR: dict[str, Any] = {
    "joints": JOINTS, "control_rate": 10.0, "state_rate": 10.0, "position_lower": [-1.0],
    "position_upper": [1.0], "velocity_limit": [2.0], "acceleration_limit": [20.0],
}  # fmt: skip


class Recorder:
    """Keeps messages with the simulated time at which they came, and writes them as a bag."""

    def __init__(self, ros: Any) -> None:
        self._ros = ros
        self.messages: list[tuple[int, str, Any]] = []

    def listen(self, kind: Any, topic: str, profile: Any) -> None:
        self._ros.helper.create_subscription(kind, topic, lambda message: self.add(topic, message), profile)
        self._ros.spin_until(lambda: self._ros.helper.count_publishers(topic) > 0, topic)

    def add(self, topic: str, message: Any) -> None:
        self.messages.append((self._ros.now_ns, topic, message))

    def of(self, topic: str) -> list[Any]:
        return [message for _, each, message in self.messages if each == topic]

    def write(self, folder: Path) -> None:
        store, connections = known_types(), {}
        with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            for time_ns, topic, message in self.messages:
                package, kind = type(message).__module__.split(".")[0], type(message).__name__
                if topic not in connections:
                    name = f"{package}/msg/{kind}"
                    connections[topic] = writer.add_connection(f"/{topic}", name, typestore=store)
                writer.write(connections[topic], time_ns, serialize_message(message))


class Stage:
    """Both nodes, and the robot's sensors, on simulated time."""

    def __init__(self, ros: Any, checkpoint: Path) -> None:
        self.ros = ros
        self.recorder = Recorder(ros)
        nodes = [
            ros.add(PolicyNode, checkpoint=str(checkpoint), **POLICY),
            ros.add(ChunkExecutorNode, **EXECUTOR),
        ]
        assert all(node.trigger_configure() == SUCCESS for node in nodes)
        for kind, topic, profile in (
            (ActionChunk, "action_chunk", qos.STATE),
            (ExecutorState, "executor_state", qos.STATE),
            (ControlStep, "control_step", qos.STATE),
            (JointTrajectory, "joint_trajectory", qos.STATE),
            (UInt64, "epoch", qos.LATCHED),
        ):
            self.recorder.listen(kind, topic, profile)
        self._topics = {"joint_states": ros.publisher(JointState, "joint_states", qos.STATE)}
        for camera in CAMERAS:
            topic = f"camera/{camera}/image_raw"
            self._topics[topic] = ros.publisher(Image, topic, qos.STATE)
        ros.spin_until(lambda: nodes[1].count_publishers("action_chunk") == 1, "one publisher of chunks")
        assert all(node.trigger_activate() == SUCCESS for node in reversed(nodes))
        ros.spin_until(lambda: self.recorder.of("epoch"), "the epoch")
        ros.settle(5)
        self._random = np.random.default_rng(7)
        self._start_ns = ros.now_ns

    def play(self, length_ms: int) -> None:
        """Sensors and control steps, one event at a time; each is over before the next."""
        events = [(time, self._joints) for time in range(10, length_ms, 20)]
        events += [(time, self._tick) for time in range(100, length_ms, 100)]
        events += [(time, self._observation) for time in range(37, length_ms, 130)]
        for time, act in sorted(events, key=lambda event: event[0]):
            self.ros.set_time(self._start_ns + time * MS)
            act()

    def _publish(self, topic: str, message: Any) -> None:
        message.header.stamp = stamp(self.ros.now_ns - 4 * MS)
        self.recorder.add(topic, message)
        self._topics[topic].publish(message)

    def _joints(self) -> None:
        positions = self._random.uniform(-1.0, 1.0, 3).tolist()
        self._publish("joint_states", JointState(name=JOINTS, position=positions))
        self.ros.settle(3)

    def _observation(self) -> None:
        before = len(self.recorder.of("action_chunk"))
        for camera in CAMERAS:
            picture = self._random.integers(0, 256, 64 * 96 * 3, dtype=np.uint8)
            message = Image(height=64, width=96, encoding="rgb8", step=288, data=picture.tobytes())
            self._publish(f"camera/{camera}/image_raw", message)
        self.ros.spin_until(lambda: len(self.recorder.of("action_chunk")) > before, "a chunk")
        self.ros.settle(5)

    def _tick(self) -> None:
        def done() -> bool:
            states = self.recorder.of("executor_state")
            return bool(states) and nanoseconds(states[-1].header.stamp) >= self.ros.now_ns

        self.ros.spin_until(done, "a control step")
        self.ros.settle(3)


class LiveStage:
    """The executor alone, on the machine's clock; the test plays joints and policy at any moments.

    The recorder receives what is published when the thread gets to it, often after the next control step.
    """

    def __init__(self, ros: Any) -> None:
        self.ros = ros
        self.recorder = Recorder(ros)
        self.node = ros.add_live(ChunkExecutorNode, **{**EXECUTOR, "control_rate": 50.0})
        assert self.node.trigger_configure() == SUCCESS
        for kind, topic in ((ControlStep, "control_step"), (JointTrajectory, "joint_trajectory")):
            self.recorder.listen(kind, topic, qos.STATE)
        self._joints = ros.publisher(JointState, "joint_states", qos.STATE)
        self._chunks = ros.publisher(ActionChunk, "action_chunk", qos.STATE)
        self._epochs = ros.publisher(UInt64, "epoch", qos.LATCHED)
        ros.spin_until(lambda: self.node.count_publishers("action_chunk") == 1, "one publisher of chunks")
        assert self.node.trigger_activate() == SUCCESS
        self._random = np.random.default_rng(11)
        self._sequence = 0

    def play(self, steps: int) -> None:
        """Until so many control steps are recorded; a new epoch half-way."""
        self._epochs.publish(UInt64(data=1))
        acts = (self._publish_joints, self._publish_chunk)

        def recorded() -> bool:
            self.ros.now_ns = self.node.get_clock().now().nanoseconds
            count = len(self.recorder.of("control_step"))
            if self._epoch == 1 and count > steps // 2:
                self._epoch = 2
                self._epochs.publish(UInt64(data=2))
            acts[int(self._random.random() < 0.2)]()
            return count >= steps

        self._epoch = 1
        self.ros.spin_until(recorded, f"{steps} control steps")
        self.ros.settle(10)

    def _publish_joints(self) -> None:
        message = JointState(name=JOINTS, position=self._random.uniform(-1.0, 1.0, 3).tolist())
        message.header.stamp = stamp(self.ros.now_ns)
        self.recorder.add("joint_states", message)
        self._joints.publish(message)

    def _publish_chunk(self) -> None:
        self._sequence += 1
        message = ActionChunk(
            sequence=self._sequence, epoch=self._epoch, action_names=JOINTS, step_period=0.02, horizon=30,
            window=30, actions=self._random.uniform(-1.0, 1.0, 90).tolist(),
        )  # fmt: skip
        message.header.stamp = stamp(self.ros.now_ns - int(self._random.integers(0, 30 * MS)))
        self.recorder.add("action_chunk", message)
        self._chunks.publish(message)


def write_parameters(folder: Path, node: str, values: dict[str, Any]) -> str:
    path = folder / f"{node}.yaml"
    path.write_text(yaml.safe_dump({node: {"ros__parameters": values}}))
    return str(path)


@pytest.mark.parametrize("kind", ["act", "impact"])
def test_nodes_and_library_agree_bit_for_bit(
    ros: Any, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / kind
    cameras = tuple(Camera(name, 64, 96) for name in CAMERAS)
    make_checkpoint(
        kind, checkpoint, Options(cameras=cameras, state_dim=3, action_dim=3, sizes=SIZES, seed=3)
    )
    stage = Stage(ros, checkpoint)
    stage.play(2000)
    chunks, commands = stage.recorder.of("action_chunk"), stage.recorder.of("joint_trajectory")
    assert len(chunks) == 16 and len(commands) > 15
    stage.recorder.write(tmp_path / "bag")
    arguments = [
        "replay", str(tmp_path / "bag"), "--checkpoint", str(checkpoint),
        "--policy-params", write_parameters(tmp_path, "policy_node", POLICY),
        "--executor-params", write_parameters(tmp_path, "chunk_executor_node", EXECUTOR),
    ]  # fmt: skip
    assert main(arguments) == 0, capsys.readouterr()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "chunks: 16 recorded, 16 made again, 16 of them the same bit for bit"
    steps = stage.recorder.of("control_step")
    assert [list(each.points[0].positions) for each in commands] == [
        list(each.command) for each in steps if len(each.command)
    ]
    count = len(steps)
    assert lines[1] == (
        f"control steps: {count} recorded, {len(commands)} with a command; {count} the same bit for bit, "
        "commands differ by 0 at most"
    )
    assert lines[2:] == [f"executed rows: the same at {count} of {count} control steps"]


def test_a_live_run_is_made_again_bit_for_bit(ros: Any, tmp_path: Path) -> None:
    stage = LiveStage(ros)
    stage.play(60)
    stage.recorder.write(tmp_path / "bag")
    values = {spec.name: spec.default for spec in PARAMETERS} | EXECUTOR | {"control_rate": 50.0}
    with Bag(tmp_path / "bag") as bag:
        found = replay_commands(bag, settings_from(values).loop, {})
    assert found.alike and found.whole and not found.missing, found
    assert found.steps >= 60 and found.commands > 30 and found.difference == 0.0
    executed = {(step.sequence, step.row) for step in stage.recorder.of("control_step") if step.row >= 0}
    assert len(executed) > 20
