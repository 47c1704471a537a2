"""Real-time chunking through both nodes with a SmolVLA checkpoint: the library's actions, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import Image, JointState
from small_checkpoints import small_options
from std_msgs.msg import UInt64
from vla_simd_ros.msg import ActionChunk, ExecutorState

from vla_simd_ros.checkpoints.synthesis import Camera, make_checkpoint
from vla_simd_ros.inference import Observation, Policy, Prefix
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.chunk_executor_node import ChunkExecutorNode
from vla_simd_ros.nodes.messages import nanoseconds, stamp
from vla_simd_ros.nodes.policy_node import PolicyNode

SUCCESS = TransitionCallbackReturn.SUCCESS
PERIOD = 100_000_000
HEIGHT, WIDTH, ROWS = 24, 32, 12
JOINTS = ["pan", "lift", "grip"]
POSITIONS = [0.25, -0.5, 0.125]
INSTRUCTION = "put the tape into the box"
POLICY = {"joints": JOINTS, "threads": 1, "instruction": INSTRUCTION, "step_period": 0.1, "num_steps": 8}
EXECUTOR: dict[str, Any] = {
    "joints": JOINTS, "control_rate": 10.0, "state_rate": 10.0, "position_lower": [-50.0],
    "position_upper": [50.0], "velocity_limit": [1e4], "acceleration_limit": [1e6],
}  # fmt: skip
RTC = {"prefix_attention_schedule": "EXP", "max_guidance_weight": 4.0, "execution_horizon": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("smolvla") / "checkpoint"
    cameras = (Camera("front", HEIGHT, WIDTH),)
    options = small_options(
        "smolvla", sizes={"chunk_size": ROWS}, cameras=cameras, state_dim=3, action_dim=3, seed=3
    )
    make_checkpoint("smolvla", made, options)
    return made


def says(folder: Path, rtc_config: dict[str, Any] | None) -> None:
    """Let the checkpoint say how its chunks continue."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rtc_config": rtc_config}))


class Stage:
    """Both nodes, and the robot's sensors, on simulated time: control steps are 100 ms apart."""

    def __init__(self, ros: Any, folder: Path, **changes: Any) -> None:
        self.ros = ros
        self.policy = ros.add(PolicyNode, checkpoint=str(folder), **POLICY, **changes)
        self.executor = ros.add(ChunkExecutorNode, **EXECUTOR)
        assert self.policy.trigger_configure() == self.executor.trigger_configure() == SUCCESS
        self.chunks: list[ActionChunk] = ros.collect(ActionChunk, "action_chunk", qos.CHUNK)
        self.states: list[ExecutorState] = ros.collect(ExecutorState, "executor_state", qos.STATE)
        epochs: list[UInt64] = ros.collect(UInt64, "epoch", qos.LATCHED)
        self._camera = ros.publisher(Image, "camera/front/image_raw", qos.STATE)
        self._joints = ros.publisher(JointState, "joint_states", qos.STATE)
        ros.spin_until(lambda: self.executor.count_publishers("action_chunk") == 1, "the publisher of chunks")
        assert self.executor.trigger_activate() == self.policy.trigger_activate() == SUCCESS
        ros.spin_until(lambda: epochs, "the epoch")
        ros.spin_until(lambda: self._loop.timeline.epoch == epochs[-1].data, "the executor to know the epoch")
        self._random = np.random.default_rng(7)
        self.measure()

    @property
    def _loop(self) -> Any:
        return self.executor._pipeline._loop

    def measure(self) -> None:
        """The joints where they are."""
        message = JointState(name=JOINTS, position=POSITIONS)
        message.header.stamp = stamp(self.ros.now_ns)
        self._joints.publish(message)
        self.ros.settle(3)

    def observe(self, age_ns: int = 0) -> Observation:
        """A frame captured so long ago, and the chunk that it leads to, at the executor."""
        before, received = len(self.chunks), self._loop.chunks_received
        picture = self._random.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        message = Image(height=HEIGHT, width=WIDTH, encoding="rgb8", step=3 * WIDTH, data=picture.tobytes())
        message.header.stamp = stamp(self.ros.now_ns - age_ns)
        self._camera.publish(message)
        self.ros.spin_until(lambda: len(self.chunks) > before, "a chunk")
        self.ros.spin_until(lambda: self._loop.chunks_received > received, "the chunk at the executor")
        return Observation({"front": picture}, np.array(POSITIONS, np.float32))

    def control_step(self) -> None:
        self.ros.set_time(self.ros.now_ns + PERIOD)
        self.measure()
        self.ros.spin_until(
            lambda: self.states and nanoseconds(self.states[-1].header.stamp) >= self.ros.now_ns,
            "the state after a control step",
        )

    def rows(self, chunk: int) -> np.ndarray:
        return np.array(self.chunks[chunk].actions, np.float32).reshape(ROWS, len(JOINTS))

    def wait_for_committed_rows(self) -> None:
        """Until the policy node has those of the last control step."""

        def known() -> bool:
            given = self.policy._pipeline._runner.committed
            return given is not None and given.start_ns + given.executed * PERIOD > self.ros.now_ns

        self.ros.spin_until(known, "the committed rows of the last control step")


@pytest.mark.parametrize(
    ("changes", "horizon", "schedule", "weight"),
    [
        ({}, 6, "EXP", 4.0),
        ({"execution_horizon": 8, "prefix_schedule": "ONES", "max_guidance_weight": 2.5}, 8, "ONES", 2.5),
        ({"execution_horizon": 2}, 3, "EXP", 4.0),
    ],
    ids=["the checkpoint's", "the parameters'", "no less than is committed"],
)
def test_a_chunk_continues_the_one_in_execution(
    ros: Any, folder: Path, changes: dict[str, Any], horizon: int, schedule: str, weight: float
) -> None:
    says(folder, RTC)
    stage = Stage(ros, folder, **changes)
    first = stage.observe()
    for _ in range(3):
        stage.control_step()
    stage.wait_for_committed_rows()
    second = stage.observe(age_ns=2 * PERIOD)
    assert [chunk.frozen for chunk in stage.chunks] == [0, 3], "the rows executed since the capture"

    library = Policy.load(folder, threads=1)
    library.set_instruction(INSTRUCTION)
    noises = [library.noise(chunk.timing.noise_seed, 8) for chunk in stage.chunks]
    before = library.query(first, noise=noises[0], num_steps=8).actions
    np.testing.assert_array_equal(stage.rows(0), before)
    prefix = Prefix(before[1:], 3, horizon, schedule, weight)
    held = library.query(second, noise=noises[1], num_steps=8, prefix=prefix).actions
    np.testing.assert_array_equal(stage.rows(1), held)
    free = library.query(second, noise=noises[1], num_steps=8).actions
    assert np.abs(held[:3] - before[1:4]).max() < 0.5 * np.abs(free[:3] - before[1:4]).max()


def test_nothing_is_continued_where_the_checkpoint_switches_it_off(ros: Any, folder: Path) -> None:
    says(folder, {**RTC, "enabled": False})
    stage = Stage(ros, folder)
    assert stage.executor.count_subscribers("committed_prefix") == 0
    stage.observe()
    stage.control_step()
    stage.observe()
    assert [chunk.frozen for chunk in stage.chunks] == [0, 0]


def test_a_checkpoint_with_odd_values_fails_configuration(
    ros: Any, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    says(folder, {**RTC, "prefix_attention_schedule": "FAST"})
    node = ros.add(PolicyNode, checkpoint=str(folder), **POLICY)
    assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
    error = capfd.readouterr().err
    assert "prefix_attention_schedule of rtc_config is 'FAST', expected one of LINEAR, EXP" in error
    assert "Traceback" not in error
