"""The policy node: observations in, chunks out, and every way an observation or a checkpoint can be bad."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Float64, String, UInt64
from std_srvs.srv import Trigger
from vla_simd_ros.msg import ActionChunk, CommittedPrefix, ExecutorState, QueryTiming

from vla_simd_ros.control.supply_watch import SupplyWatch
from vla_simd_ros.decoding.base import Decoded, DecodingError, Exit, Pass
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.inference import InputError, Observation, Prefix, Query, Timing
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.messages import nanoseconds, stamp
from vla_simd_ros.nodes.policy_node import PolicyNode
from vla_simd_ros.policies.base import CameraSpec, PolicySpec

MS = 1_000_000
CAMERA = CameraSpec(height=6, width=8)
SPEC = PolicySpec(
    "fake", {"front": CAMERA, "wrist": CAMERA}, 2, 0, 2, chunk_size=4, n_action_steps=3,
    uses_instruction=True, max_instruction_tokens=32,
)  # fmt: skip
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class FakePolicy:
    """Stands where the engine would: row i of its chunk is the state plus i tenths."""

    name = "fake"

    def __init__(self, spec: PolicySpec = SPEC) -> None:
        self.spec = spec
        self.supports_prefix = spec.takes_prefix
        self.solver: Any = None
        self.action_tokens: Any = None
        self.prefixes: list[Prefix] = []
        self.sampled: list[dict[str, Any]] = []
        self.instructions: list[str] = []
        self.observations: list[Observation] = []
        self.instruction_truncated = False
        self.int8 = ("encoder.ffn", "head")
        self.closed = threading.Event()
        self.warmed = False
        self.gate: threading.Semaphore | None = None
        self.spoil: Any = None

    def set_instruction(self, text: str) -> float:
        if text == "?":
            raise InputError("the instruction '?' has no words")
        if self.instructions[-1:] == [text]:
            return 0.0
        self.instructions.append(text)
        self.instruction_truncated = len(text.split()) > 32
        return 7.0

    def noise(self, seed: int, num_steps: int | None = None) -> np.ndarray:
        if num_steps == 7:
            raise InputError("num_steps is 7: expected an even number")
        return np.array([seed])

    def query(self, observation: Observation, prefix: Prefix | None = None, **sampled: Any) -> Query:
        self.observations.append(observation)
        self.sampled.append(sampled)
        if prefix is not None:
            self.prefixes.append(prefix)
        if self.gate is not None:
            assert self.gate.acquire(timeout=20.0)
        assert observation.state is not None
        rows = np.atleast_2d(observation.state)[-1:] + 0.1 * np.arange(4)[:, None]
        if self.spoil is not None:
            rows = self.spoil(rows)
        time.sleep(0.0245)  # as long as it says
        return Query(rows.astype(np.float32), Timing(1.0, 20.0, 3.0, 0.5, 24.5))

    def warm_up(self) -> None:
        self.warmed = True

    def cancel(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self.closed.set()


class Robot:
    """A policy node under test, with cameras and joints played by the test."""

    def __init__(
        self, ros: Any, policy: FakePolicy | None = None, activate: bool = True, **changes: Any
    ) -> None:
        self.ros = ros
        self.policy = policy or FakePolicy()
        parameters = {"checkpoint": "somewhere", "joints": ["pan", "lift"], "instruction": "pick it up"}
        self.node = ros.add(
            lambda **options: PolicyNode(load=lambda folder, **_: self.policy, **options),
            **{**parameters, **changes},
        )
        assert self.node.trigger_configure() == SUCCESS
        self.chunks: list[ActionChunk] = ros.collect(ActionChunk, "action_chunk", qos.CHUNK)
        self.epochs: list[UInt64] = ros.collect(UInt64, "epoch", qos.LATCHED)
        self.diagnostics: list[DiagnosticArray] = ros.collect(DiagnosticArray, "/diagnostics", qos.STATE)
        kind, suffix = (
            (Image, "")
            if changes.get("image_transport") != "compressed"
            else (CompressedImage, "/compressed")
        )
        self.cameras = {
            name: ros.publisher(kind, f"camera/{name}/image_raw{suffix}", qos.STATE)
            for name in self.policy.spec.cameras
        }
        self.joints = ros.publisher(JointState, "joint_states", qos.STATE)
        if activate:
            assert self.node.trigger_activate() == SUCCESS

    def joint_state(self, positions: list[float], time_ns: int, names: list[str] | None = None) -> None:
        message = JointState(name=names or ["pan", "lift"], position=positions)
        message.header.stamp = stamp(time_ns)
        self.joints.publish(message)
        self.ros.settle(3)

    def frame(self, camera: str, time_ns: int, **changes: Any) -> None:
        message = Image(height=6, width=8, encoding="rgb8", step=24, data=bytes(144))
        message.header.stamp = stamp(time_ns)
        for name, value in changes.items():
            setattr(message, name, value)
        self.cameras[camera].publish(message)
        self.ros.settle(3)

    def observe(self, age_ms: int = 50, **changes: Any) -> int:
        """A whole observation captured ``age_ms`` ago, the front camera 5 ms before the wrist camera."""
        captured = self.ros.now_ns - age_ms * MS
        self.joint_state([1.0, 2.0], captured - 10 * MS)
        self.joint_state([3.0, 4.0], captured + 10 * MS)
        self.frame("front", captured, **changes)
        self.frame("wrist", captured + 5 * MS)
        return captured

    def await_chunk(self, count: int = 1) -> ActionChunk:
        self.ros.spin_until(lambda: len(self.chunks) >= count, f"{count} chunks")
        return self.chunks[-1]

    def next_moment(self, ms: int = 33) -> None:
        self.ros.set_time(self.ros.now_ns + ms * MS)

    def await_diagnostic(self, words: str) -> None:
        self.diagnostics.clear()
        self.ros.spin_until(
            lambda: any(words in s.message for array in self.diagnostics for s in array.status),
            f"a diagnostic with '{words}', last: {self.diagnostics[-1:]}",
        )


def test_an_observation_becomes_a_chunk_stamped_with_its_capture_time(ros: Any) -> None:
    robot = Robot(ros)
    timings = ros.collect(QueryTiming, "query_timing", qos.STATE)
    worked = ros.collect(Float64, "/policy_node/debug/processing_time_ms", qos.CHUNK)
    captured = robot.observe(age_ms=50)
    chunk = robot.await_chunk()
    assert nanoseconds(chunk.header.stamp) == captured
    assert (chunk.sequence, chunk.policy, chunk.instruction) == (1, "fake", "pick it up")
    assert (chunk.horizon, chunk.window, chunk.action_names) == (4, 3, ["pan", "lift"])
    assert chunk.step_period == pytest.approx(1 / 30)
    assert np.array(chunk.actions).reshape(4, 2)[:, 0] == pytest.approx([2.0, 2.1, 2.2, 2.3])
    assert chunk.epoch == robot.epochs[-1].data
    timing = chunk.timing
    assert timing.observation_age_ms == pytest.approx(50.0)
    assert timing.observation_to_publish_ms == pytest.approx(50.0)
    assert (timing.query_ms, timing.step_ms) == (20.0, 3.0)
    assert timing.preprocess_ms > 1.0 and timing.postprocess_ms >= 0.5 and timing.total_ms > 24.5
    assert timing.preprocess_ms + 23.0 + timing.postprocess_ms == pytest.approx(timing.total_ms)
    # Simulated time stood still but for the age of the frames.
    assert (timing.transport_ms, timing.sync_ms, timing.wait_ms, timing.publish_ms) == (50.0, 0.0, 0.0, 0.0)
    assert [nanoseconds(each) for each in timing.frame_stamps] == [captured, captured + 5 * MS]
    assert nanoseconds(timing.joint_stamp) == captured + 10 * MS
    ros.spin_until(lambda: timings, "the timing")
    assert timings[0].sequence == 1
    ros.spin_until(lambda: worked, "the processing time")
    assert worked[0].data == pytest.approx(timing.total_ms)


def test_the_joint_state_is_interpolated_to_the_oldest_frame(ros: Any) -> None:
    robot = Robot(ros)
    robot.observe()
    robot.await_chunk()
    assert robot.policy.observations[0].state == pytest.approx([2.0, 3.0])


def test_units_are_those_of_the_policy_inside_and_radians_outside(ros: Any) -> None:
    robot = Robot(ros, joint_units=["deg"])
    robot.observe()
    chunk = robot.await_chunk()
    assert robot.policy.observations[0].state == pytest.approx(np.rad2deg([2.0, 3.0]))
    assert chunk.actions[:2] == pytest.approx([2.0, 3.0])


def test_queries_go_on_with_every_observation(ros: Any) -> None:
    robot = Robot(ros)
    for i in range(1, 4):
        robot.observe()
        assert robot.await_chunk(i).sequence == i
        robot.next_moment()
    stamps = [nanoseconds(chunk.header.stamp) for chunk in robot.chunks]
    assert stamps == sorted(set(stamps))


def test_compressed_images_are_decoded(ros: Any) -> None:
    robot = Robot(ros, image_transport="compressed")
    picture = np.zeros((6, 8, 3), dtype=np.uint8)
    picture[:, :, 0] = 200
    data = cv2.imencode(".png", picture)[1].tobytes()
    captured = ros.now_ns - 20 * MS
    robot.joint_state([0.0, 0.0], captured)
    for camera in robot.cameras.values():
        message = CompressedImage(format="png", data=data)
        message.header.stamp = stamp(captured)
        camera.publish(message)
    robot.await_chunk()
    assert robot.policy.observations[0].images["wrist"][0, 0].tolist() == [0, 0, 200]


BAD_FRAMES: list[tuple[dict[str, Any], str]] = [
    ({"width": 4, "step": 12, "data": bytes(72)}, "camera 'front': got 4x6 rgb8, the checkpoint expects 8x6"),
    ({"encoding": "nv21", "step": 8, "data": bytes(48)}, "camera 'front': got the encoding 'nv21'"),
    ({"step": 20}, "step is 20 bytes, expected at least"),
    ({"data": bytes(100)}, "100 bytes of data, expected"),
]


@pytest.mark.parametrize(("changes", "words"), BAD_FRAMES)
def test_a_bad_image_is_refused_and_the_next_good_one_is_used(
    ros: Any, changes: dict[str, Any], words: str
) -> None:
    robot = Robot(ros)
    robot.observe(**changes)
    robot.await_diagnostic(words)
    assert robot.policy.observations == []
    robot.next_moment()
    robot.observe()
    robot.await_chunk()


@pytest.mark.parametrize(
    ("offset_ns", "words"),
    [
        (None, "the stamp is zero"),
        (10_000 * MS, "in the future"),
        (-10_000 * MS, "before the one already used"),
    ],
)
def test_a_frame_with_a_bad_stamp_is_refused(ros: Any, offset_ns: int | None, words: str) -> None:
    robot = Robot(ros)
    robot.observe()
    robot.await_chunk()
    robot.next_moment()
    bad = 0 if offset_ns is None else ros.now_ns + offset_ns
    robot.joint_state([1.0, 2.0], ros.now_ns)
    robot.frame("front", bad)
    robot.frame("wrist", ros.now_ns)
    robot.await_diagnostic(words)
    assert len(robot.policy.observations) == 1


@pytest.mark.parametrize(
    ("names", "positions", "offset_ns", "words"),
    [
        (["pan"], [0.0], 0, "lacks ['lift']"),
        (["pan", "lift"], [0.0, float("nan")], 0, "'lift' is nan"),
        (["pan", "lift"], [0.0, 0.0], 10_000 * MS, "in the future"),
        (["pan", "lift"], [0.0, 0.0], -2_000_000 * MS, "the stamp is zero"),
    ],
)
def test_a_bad_joint_state_is_refused_and_no_query_is_made(
    ros: Any, names: list[str], positions: list[float], offset_ns: int, words: str
) -> None:
    robot = Robot(ros)
    captured = ros.now_ns - 20 * MS
    robot.joint_state(positions, captured + offset_ns, names)
    robot.frame("front", captured)
    robot.frame("wrist", captured)
    robot.await_diagnostic("no joint state has been received")
    robot.await_diagnostic(words)
    assert robot.policy.observations == []


def test_extra_joints_are_passed_over(ros: Any) -> None:
    robot = Robot(ros)
    captured = ros.now_ns - 20 * MS
    robot.joint_state([9.0, 0.5, 0.25], captured, ["wheel", "lift", "pan"])
    robot.frame("front", captured)
    robot.frame("wrist", captured)
    robot.await_chunk()
    assert robot.policy.observations[0].state == pytest.approx([0.25, 0.5])


def test_a_camera_that_stops_is_an_error(ros: Any) -> None:
    robot = Robot(ros, camera_timeout=0.5)
    robot.observe()
    robot.await_chunk()
    for _ in range(3):
        robot.next_moment(200)
        robot.frame("front", ros.now_ns)
    robot.await_diagnostic("camera 'wrist': no usable frame for 0.")
    assert len(robot.chunks) == 1


def test_a_camera_that_delivers_less_than_its_stamps_say_is_reported_with_what_to_do(ros: Any) -> None:
    robot = Robot(ros)
    for i in range(60):
        robot.next_moment(33)
        if i % 5 < 2:
            robot.frame("front", ros.now_ns)
    robot.await_diagnostic("camera 'front' delivers 4")
    robot.await_diagnostic("FASTRTPS_DEFAULT_PROFILES_FILE")


def test_an_observation_that_is_too_old_is_not_used(ros: Any) -> None:
    robot = Robot(ros, max_observation_age=0.1)
    robot.observe(age_ms=150)
    robot.await_diagnostic("observations are late")
    assert robot.policy.observations == []


def test_an_instruction_starts_an_epoch_and_runs_the_episode_program(ros: Any) -> None:
    robot = Robot(ros)
    instructions = ros.publisher(String, "instruction", qos.LATCHED)
    robot.observe()
    first = robot.await_chunk()
    robot.next_moment()
    instructions.publish(String(data="put it down"))
    ros.spin_until(lambda: robot.epochs[-1].data > first.epoch, "a new epoch")
    robot.observe()
    second = robot.await_chunk(2)
    assert second.instruction == "put it down"
    assert second.epoch == robot.epochs[-1].data > first.epoch
    assert second.timing.episode_ms == 7.0 and first.timing.episode_ms == 0.0
    assert robot.policy.instructions == ["pick it up", "put it down"]
    instructions.publish(String(data="put it down"))
    ros.settle()
    assert robot.epochs[-1].data == second.epoch


@pytest.mark.parametrize("profile", [qos.LATCHED, qos.NOT_LATCHED])
def test_an_instruction_is_heard_from_latching_and_from_plain_publishers(ros: Any, profile: Any) -> None:
    robot = Robot(ros)
    ros.publisher(String, "instruction", profile).publish(String(data="put it down"))
    ros.spin_until(lambda: "put it down" in robot.policy.instructions, "the instruction")
    ros.settle()
    assert robot.policy.instructions == ["pick it up", "put it down"]


def test_an_instruction_from_before_the_node_is_heard(ros: Any) -> None:
    early = ros.publisher(String, "instruction", qos.LATCHED, matched=False)
    early.publish(String(data="put it down"))
    robot = Robot(ros)
    ros.spin_until(lambda: "put it down" in robot.policy.instructions, "the instruction")


def test_a_chunk_in_flight_is_dropped_when_the_instruction_changes(ros: Any) -> None:
    robot = Robot(ros)
    robot.policy.gate = threading.Semaphore(0)
    instructions = ros.publisher(String, "instruction", qos.LATCHED)
    robot.observe()
    ros.spin_until(lambda: robot.policy.observations, "a query")
    first_epoch = robot.epochs[-1].data
    robot.next_moment()
    instructions.publish(String(data="put it down"))
    ros.spin_until(lambda: robot.epochs[-1].data > first_epoch, "a new epoch")
    robot.observe()
    robot.policy.gate.release(2)
    chunk = robot.await_chunk()
    assert (chunk.instruction, len(robot.chunks)) == ("put it down", 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty, expected a sentence"),
        ("   ", "it is empty, expected a sentence"),
        ("ab " * 2000, "it has 6000 characters, expected at most 4096"),
    ],
)
def test_an_unusable_instruction_is_refused_and_the_one_before_stays(
    ros: Any, text: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    robot = Robot(ros)
    epoch = robot.epochs[-1].data if robot.epochs else 0
    ros.spin_until(lambda: robot.epochs, "the first epoch")
    epoch = robot.epochs[-1].data
    ros.publisher(String, "instruction", qos.LATCHED).publish(String(data=text))
    ros.settle()
    assert f"{words}; 'pick it up' stays" in capfd.readouterr().err
    robot.observe()
    assert robot.await_chunk().epoch == epoch


def test_an_instruction_that_the_policy_refuses_is_reported_and_nothing_is_queried(ros: Any) -> None:
    robot = Robot(ros)
    instructions = ros.publisher(String, "instruction", qos.LATCHED)
    instructions.publish(String(data="?"))
    robot.await_diagnostic("the instruction '?' has no words")
    robot.observe()
    ros.settle()
    assert robot.policy.observations == []
    instructions.publish(String(data="pick it up again"))
    ros.spin_until(lambda: len(robot.policy.instructions) == 2, "the next instruction")
    robot.next_moment()
    robot.observe()
    robot.await_chunk()


def test_a_long_instruction_is_truncated_with_a_warning(ros: Any, capfd: pytest.CaptureFixture[str]) -> None:
    robot = Robot(ros)
    robot.observe()
    robot.await_chunk()
    text = " ".join(["word"] * 40)
    ros.publisher(String, "instruction", qos.LATCHED).publish(String(data=text))
    ros.spin_until(lambda: text in robot.policy.instructions, "the instruction")
    robot.await_diagnostic("longer than the policy takes")
    status = next(each for each in robot.diagnostics[-1].status if each.name == "policy_node: policy")
    assert status.level == DiagnosticStatus.WARN and status.hardware_id == socket.gethostname()
    assert "[WARN]" in next(line for line in capfd.readouterr().err.splitlines() if "32 tokens" in line)


def test_without_an_instruction_the_node_waits_for_one(ros: Any) -> None:
    robot = Robot(ros, instruction="")
    robot.observe()
    robot.await_diagnostic("no instruction: publish one on the topic instruction")
    assert robot.policy.observations == []
    ros.publisher(String, "instruction", qos.LATCHED).publish(String(data="go"))
    ros.spin_until(lambda: robot.policy.instructions == ["go"], "the instruction")
    robot.next_moment()
    robot.observe()
    robot.await_chunk()


def test_a_reset_starts_an_epoch(ros: Any) -> None:
    robot = Robot(ros)
    robot.observe()
    first = robot.await_chunk()
    robot.next_moment()
    assert ros.call(Trigger, "policy_node/reset", Trigger.Request()).success
    robot.observe()
    assert robot.await_chunk(2).epoch > first.epoch
    robot.node.trigger_deactivate()
    assert not ros.call(Trigger, "policy_node/reset", Trigger.Request()).success


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: rows * np.nan, "its output is not finite"),
        (lambda rows: rows[:2], "its output has shape (2, 2), expected (4, 2)"),
        (lambda rows: 1 / 0, "the policy failed: division by zero"),
    ],
)
def test_a_policy_that_fails_is_reported_and_asked_again(ros: Any, spoil: Any, words: str) -> None:
    robot = Robot(ros)
    robot.policy.spoil = spoil
    robot.observe()
    robot.await_diagnostic(words)
    assert robot.chunks == []
    robot.policy.spoil = None
    robot.next_moment()
    robot.observe()
    robot.await_chunk()


def test_deactivation_stops_queries_and_keeps_the_policy(ros: Any) -> None:
    robot = Robot(ros)
    robot.observe()
    epoch = robot.await_chunk().epoch
    robot.node.trigger_deactivate()
    robot.next_moment()
    robot.observe()
    ros.settle()
    assert len(robot.policy.observations) == 1
    assert not robot.policy.closed.is_set()
    assert robot.node.trigger_activate() == SUCCESS
    robot.next_moment()
    robot.observe()
    assert robot.await_chunk(2).epoch > epoch


def test_cleanup_frees_the_policy_and_the_node_can_be_configured_again(ros: Any) -> None:
    robot = Robot(ros)
    robot.node.trigger_deactivate()
    assert robot.node.trigger_cleanup() == SUCCESS
    assert robot.policy.closed.is_set()
    assert robot.node.trigger_configure() == SUCCESS
    assert robot.policy.warmed


def test_cleanup_during_a_query_frees_the_policy_when_it_ends(ros: Any) -> None:
    robot = Robot(ros)
    robot.policy.gate = threading.Semaphore(0)
    robot.observe()
    ros.spin_until(lambda: robot.policy.observations, "a query")
    robot.node.trigger_deactivate()
    assert robot.node.trigger_cleanup() == SUCCESS
    assert not robot.policy.closed.is_set()
    robot.policy.gate.release()
    assert robot.policy.closed.wait(10.0)
    assert robot.chunks == []


def test_a_clock_jump_starts_an_epoch_with_fresh_observations(ros: Any) -> None:
    robot = Robot(ros)
    robot.observe()
    first = robot.await_chunk()
    ros.set_time(500_000_000_000)
    ros.spin_until(lambda: robot.epochs[-1].data > first.epoch, "a new epoch")
    robot.observe()
    chunk = robot.await_chunk(2)
    assert chunk.epoch > first.epoch
    assert nanoseconds(chunk.header.stamp) < nanoseconds(first.header.stamp)


def test_a_policy_without_instruction_ignores_one(ros: Any, capfd: pytest.CaptureFixture[str]) -> None:
    policy = FakePolicy(PolicySpec("act", SPEC.cameras, 2, 0, 2, 4, 3))
    robot = Robot(ros, policy, instruction="")
    ros.publisher(String, "instruction", qos.LATCHED).publish(String(data="go"))
    ros.settle()
    assert "the policy 'act' takes none" in capfd.readouterr().err
    robot.observe()
    assert robot.await_chunk().instruction == ""
    assert policy.instructions == []


def test_a_policy_that_does_not_fit_the_parameters_fails_configuration_and_is_freed(ros: Any) -> None:
    policy = FakePolicy()
    node = ros.add(
        lambda **options: PolicyNode(load=lambda folder, **_: policy, **options), checkpoint="x", joints=["a"]
    )
    assert node.trigger_configure() == FAILURE
    assert policy.closed.is_set()
    node.set_parameters([Parameter("joints", value=["a", "b"])])
    assert node.trigger_configure() == SUCCESS


def test_the_options_reach_the_loader(ros: Any) -> None:
    calls: list[Any] = []

    def load(folder: str, **options: Any) -> FakePolicy:
        calls.append(SimpleNamespace(folder=folder, **options))
        return FakePolicy()

    node = ros.add(
        lambda **o: PolicyNode(load=load, **o),
        checkpoint="/models/a", joints=["a", "b"], threads=3, isa="avx2", affinity=[0, 2],
        convolution="direct",
    )  # fmt: skip
    assert node.trigger_configure() == SUCCESS
    engine = {"threads": 3, "isa": "avx2", "affinity": (0, 2), "convolution": "direct"}
    options = {"executor": "simd", "int8": "", "settings": "auto", **engine}
    assert calls == [SimpleNamespace(folder="/models/a", **options)]


def test_no_checkpoint_is_an_error_that_says_so(ros: Any, capfd: pytest.CaptureFixture[str]) -> None:
    node = ros.add(PolicyNode)
    assert node.trigger_configure() == FAILURE
    assert "checkpoint: got an empty name" in capfd.readouterr().err


def test_a_missing_checkpoint_folder_fails_configuration(
    ros: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node = ros.add(PolicyNode, checkpoint=str(tmp_path / "nothing"))
    assert node.trigger_configure() == FAILURE
    error = capfd.readouterr().err
    assert "nothing" in error and "Traceback" not in error


def committed(robot: Robot, start_ns: int, rows: list[list[float]], **changes: Any) -> CommittedPrefix:
    """Rows of the present epoch, 100 ms apart."""
    message = CommittedPrefix(
        joint_names=["lift", "pan"], epoch=robot.epochs[-1].data, sequence=1, first_row=1, executed=1,
        period_ns=100 * MS, rows=[value for row in rows for value in row],
    )  # fmt: skip
    message.header.stamp = stamp(start_ns)
    for name, value in changes.items():
        setattr(message, name, value)
    return message


PREFIX_SPEC = replace(SPEC, takes_prefix=True)


def test_committed_rows_are_the_first_of_a_chunk_for_a_policy_that_continues_them(ros: Any) -> None:
    robot = Robot(ros, FakePolicy(PREFIX_SPEC), joint_units=["deg"], step_period=0.1, execution_horizon=10)
    executor = ros.publisher(CommittedPrefix, "committed_prefix", qos.CHUNK)
    ros.spin_until(lambda: robot.epochs, "the epoch")
    captured = ros.now_ns - 50 * MS
    executor.publish(committed(robot, captured - 100 * MS, [[9.0, 8.0], [2.0, 1.0], [4.0, 3.0]]))
    ros.spin_until(lambda: robot.node._pipeline._runner.committed is not None, "the committed rows")
    assert robot.observe(age_ms=50) == captured
    chunk = robot.await_chunk()
    assert chunk.frozen == 2
    prefix = robot.policy.prefixes[0]
    assert prefix.actions == pytest.approx(np.rad2deg([[1.0, 2.0], [3.0, 4.0]]))
    assert (prefix.frozen, prefix.horizon, prefix.schedule) == (2, 10, None)


def test_the_rest_of_the_chunk_in_execution_follows_the_committed_rows(ros: Any) -> None:
    robot = Robot(ros, FakePolicy(PREFIX_SPEC), step_period=0.1, execution_horizon=3)
    executor = ros.publisher(CommittedPrefix, "committed_prefix", qos.CHUNK)
    captured = robot.observe(age_ms=20)
    rows = np.array(robot.await_chunk().actions).reshape(4, 2)
    assert robot.policy.prefixes == []
    robot.next_moment(100)
    executor.publish(committed(robot, captured, rows[:3, ::-1].tolist()))
    ros.spin_until(lambda: robot.node._pipeline._runner.committed is not None, "the committed rows")
    assert robot.observe(age_ms=20) == captured + 100 * MS
    assert robot.await_chunk(2).frozen == 2
    (prefix,) = robot.policy.prefixes
    assert prefix.actions == pytest.approx(rows[1:])
    assert (prefix.frozen, prefix.horizon) == (2, 3)


def test_without_a_horizon_nothing_is_continued(ros: Any) -> None:
    robot = Robot(ros, FakePolicy(PREFIX_SPEC), execution_horizon=0)
    ros.spin_until(lambda: robot.epochs, "the epoch")
    assert robot.node.count_subscribers("committed_prefix") == 0


def test_rows_of_another_epoch_are_not_given(ros: Any) -> None:
    robot = Robot(ros, FakePolicy(PREFIX_SPEC), step_period=0.1, execution_horizon=10)
    executor = ros.publisher(CommittedPrefix, "committed_prefix", qos.CHUNK)
    ros.spin_until(lambda: robot.epochs, "the epoch")
    executor.publish(committed(robot, ros.now_ns - 150 * MS, [[0.0, 0.0]] * 9, epoch=1))
    ros.spin_until(lambda: robot.node._pipeline._runner.committed is not None, "the committed rows")
    robot.observe(age_ms=50)
    assert (robot.await_chunk().frozen, robot.policy.prefixes) == (0, [])


def test_no_more_rows_are_given_than_a_chunk_may_execute(ros: Any) -> None:
    robot = Robot(ros, FakePolicy(PREFIX_SPEC), step_period=0.1, execution_horizon=10)
    executor = ros.publisher(CommittedPrefix, "committed_prefix", qos.CHUNK)
    ros.spin_until(lambda: robot.epochs, "the epoch")
    executor.publish(committed(robot, ros.now_ns - 50 * MS, [[0.0, 0.0]] * 40))
    ros.spin_until(lambda: robot.node._pipeline._runner.committed is not None, "the committed rows")
    robot.observe(age_ms=50)
    assert robot.await_chunk().frozen == SPEC.n_action_steps
    assert robot.policy.prefixes[0].actions.shape == (3, 2)


def test_committed_rows_of_other_joints_are_refused(ros: Any, capfd: pytest.CaptureFixture[str]) -> None:
    robot = Robot(ros, FakePolicy(PREFIX_SPEC), execution_horizon=10)
    executor = ros.publisher(CommittedPrefix, "committed_prefix", qos.CHUNK)
    ros.spin_until(lambda: robot.epochs, "the epoch")
    executor.publish(committed(robot, ros.now_ns, [[0.0, 0.0]], joint_names=["pan", "claw"]))
    ros.settle()
    assert "committed_prefix refused: joint_names" in capfd.readouterr().err
    robot.observe()
    assert robot.await_chunk().frozen == 0


def test_a_policy_that_takes_no_prefix_is_told_nothing(ros: Any) -> None:
    robot = Robot(ros)
    ros.spin_until(lambda: robot.epochs, "the epoch")
    assert robot.node.count_subscribers("committed_prefix") == 0
    assert robot.node.count_subscribers("executor_state") == 0, "and continuous queries need no reports"
    robot.observe()
    assert (robot.await_chunk().frozen, robot.policy.prefixes) == (0, [])


def test_queries_on_demand_follow_the_executors_reports(ros: Any) -> None:
    robot = Robot(ros, query_pacing="on_demand", query_threshold=1, step_period=0.1)
    reports = ros.publisher(ExecutorState, "executor_state", qos.STATE)
    bad = ExecutorState(mode="time_aligned", control_period=float("nan"))
    good = ExecutorState(mode="time_aligned", control_period=0.1, buffered_steps=3)
    for report in (bad, good):
        report.header.stamp = stamp(ros.now_ns)
        reports.publish(report)
    ros.spin_until(lambda: robot.node._pipeline._pacer._report is not None, "the report")
    queried = []
    for _ in range(9):
        robot.observe(age_ms=20)
        ros.settle(5)
        queried.append(len(robot.policy.observations))
        robot.next_moment(100)
    # A window of three rows: one is left two observations later.
    assert queried == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    robot.node._pipeline._begin_episode()
    robot.observe(age_ms=20)
    ros.spin_until(lambda: len(robot.policy.observations) == 6, "a query at once in a new epoch")


class Iterating(FakePolicy):
    """One that takes solver steps."""

    def __init__(self, spec: PolicySpec = SPEC) -> None:
        super().__init__(spec)
        self.solver = SimpleNamespace(default_steps=4, steps=lambda count: [])


def test_solver_steps_can_be_changed_while_the_node_is_active(ros: Any) -> None:
    robot = Robot(ros, Iterating(), num_steps=6, seed=3)
    robot.observe()
    first = robot.await_chunk().timing
    assert robot.node.set_parameters([Parameter("num_steps", value=2)])[0].successful
    robot.next_moment()
    robot.observe()
    second = robot.await_chunk(2).timing
    assert (first.num_steps, second.num_steps) == (6, 2)
    assert [given["num_steps"] for given in robot.policy.sampled] == [6, 2]
    seeds = [first.noise_seed, second.noise_seed]
    assert [given["noise"].tolist() for given in robot.policy.sampled] == [[seed] for seed in seeds]
    assert seeds[0] != seeds[1]
    refused = robot.node.set_parameters([Parameter("num_steps", value=7)])[0]
    assert not refused.successful and "num_steps: got 7: num_steps is 7: expected an even" in refused.reason
    assert not robot.node.set_parameters([Parameter("num_steps", value=2000)])[0].successful
    robot.next_moment()
    robot.observe()
    assert robot.await_chunk(3).timing.num_steps == 2


class Decoding(FakePolicy):
    """One that spells its actions: what a query gives is what the test has prepared."""

    def __init__(self, spec: PolicySpec = SPEC) -> None:
        super().__init__(spec)
        self.action_tokens = SimpleNamespace()
        self.decoder = DecoderOptions()
        self.exit = Exit.FIXED_POINT
        self.rows = spec.chunk_size
        self.error: Exception | None = None

    def set_decoder(self, decoder: str, **options: Any) -> None:
        self.decoder = DecoderOptions(decoder, **options)

    def query(self, observation: Observation, prefix: Prefix | None = None, **given: Any) -> Query:
        made = super().query(observation, prefix, **given)
        if self.error is not None:
            raise self.error
        passes = Pass(4, 0, (7, 7, 7, 7), 1, 0.2, 0.01), Pass(3, 0, (7, 8, 9, 6), 3, 0.9, 0.02)
        decoded = Decoded((7, 8, 9, 6), passes, self.exit, self.exit is Exit.FIXED_POINT)
        return replace(made, actions=made.actions[: self.rows], decoded=decoded)


def test_the_timing_tells_how_a_query_was_decoded(ros: Any) -> None:
    robot = Robot(ros, Decoding(), decoder="jacobi", initialization="repeat", decoder_seed=5)
    robot.observe()
    chunk = robot.await_chunk()
    timing = chunk.timing
    assert not chunk.unconverged
    assert (timing.passes, timing.tokens, timing.fixed_per_pass, list(timing.fixed_tokens)) == (
        2,
        4,
        2.0,
        [1, 3],
    )
    assert timing.min_tokens_per_second == pytest.approx(100.0)
    assert timing.mean_tokens_per_second == pytest.approx(4 / 0.03)
    assert (timing.exit, timing.exact) == (QueryTiming.FIXED_POINT, True)
    assert (timing.decoder, timing.block, timing.initialization, timing.decoder_seed) == (
        "jacobi",
        4,
        "repeat",
        5,
    )
    assert robot.policy.sampled == [{}]


def test_the_decoder_can_be_changed_while_the_node_is_active(ros: Any) -> None:
    robot = Robot(ros, Decoding(), decoder="jacobi")
    robot.observe()
    robot.await_chunk()
    changes = [Parameter("decoder", value="early_exit"), Parameter("sigma", value=1)]
    assert robot.node.set_parameters_atomically(changes).successful
    assert robot.node.set_parameters([Parameter("query_deadline_ms", value=250.0)])[0].successful
    robot.next_moment()
    before = time.monotonic()
    robot.observe()
    timing = robot.await_chunk(2).timing
    assert (timing.decoder, timing.sigma) == ("early_exit", 1.0)
    assert before < robot.policy.sampled[1]["deadline"] - 0.25 < time.monotonic()
    for name, value, words in (
        ("sigma", 1.5, "sigma: got 1.5, expected 0.0 to 1.0"),
        ("sigma", 0.0, "decoder: got 'early_exit': sigma is 0"),
        ("decoder", "beam", "expected one of autoregressive, jacobi, early_exit, auto"),
    ):
        refused = robot.node.set_parameters([Parameter(name, value=value)])[0]
        assert not refused.successful and words in refused.reason
    assert robot.policy.decoder == DecoderOptions("early_exit", 1.0)


def test_a_policy_without_tokens_has_no_decoder(ros: Any, capfd: pytest.CaptureFixture[str]) -> None:
    policy = FakePolicy()
    node = ros.add(
        lambda **options: PolicyNode(load=lambda folder, **_: policy, **options),
        checkpoint="x", joints=["a", "b"], decoder="jacobi",
    )  # fmt: skip
    assert node.trigger_configure() == FAILURE
    assert "decoder: got 'jacobi', but the policy 'fake' decodes no tokens" in capfd.readouterr().err
    assert policy.closed.is_set()


def test_a_query_that_ran_out_of_time_is_reported_and_not_published(ros: Any) -> None:
    robot = Robot(ros, Decoding(), query_deadline_ms=30.0)
    robot.policy.exit = Exit.DEADLINE
    robot.observe()
    robot.await_diagnostic("a query had not converged after 2 passes, when its deadline came")
    assert robot.chunks == []
    status = next(each for each in robot.diagnostics[-1].status if each.name == "policy_node: policy")
    assert status.level == DiagnosticStatus.WARN
    assert {pair.key: pair.value for pair in status.values}["queries not converged"] == "1"
    robot.policy.exit = Exit.FIXED_POINT
    robot.next_moment()
    robot.observe()
    assert not robot.await_chunk().unconverged


def test_a_query_that_ran_out_of_time_is_published_where_that_is_accepted_and_says_so(ros: Any) -> None:
    robot = Robot(ros, Decoding(), max_passes=2, accept_unconverged=True)
    robot.policy.exit, robot.policy.rows = Exit.MAX_PASSES, 2
    robot.observe()
    chunk = robot.await_chunk()
    assert chunk.unconverged and chunk.timing.exit == QueryTiming.MAX_PASSES and not chunk.timing.exact
    assert (chunk.horizon, chunk.window, len(chunk.actions)) == (2, 2, 4)
    robot.await_diagnostic("the last chunk is a guess")
    robot.policy.rows = 0
    robot.next_moment()
    robot.observe()
    robot.await_diagnostic("its output has shape (0, 2), expected (4, 2)")


@pytest.mark.parametrize(
    "words",
    [
        "the scores of token 3 are not finite, expected numbers",
        "token 256 at place 2 is no bin, expected 0 to 255",
        "9 tokens after 40, expected no more than the context of 48 has room for",
    ],
)
def test_what_cannot_be_decoded_is_reported_and_the_next_query_works(ros: Any, words: str) -> None:
    robot = Robot(ros, Decoding())
    robot.policy.error = DecodingError(words)
    robot.observe()
    robot.await_diagnostic(f"the policy failed: {words}")
    assert robot.chunks == []
    robot.policy.error = None
    robot.next_moment()
    robot.observe()
    robot.await_chunk()


def test_a_policy_of_one_pass_is_given_neither_steps_nor_noise(ros: Any) -> None:
    robot = Robot(ros)
    robot.observe()
    timing = robot.await_chunk().timing
    assert (timing.num_steps, timing.noise_seed) == (0, 0)
    assert robot.policy.sampled == [{}]


def test_the_step_before_is_the_one_of_its_time(ros: Any) -> None:
    robot = Robot(ros, FakePolicy(replace(SPEC, observation_steps=2)), step_period=0.1)
    captures = []
    for i in range(5):
        captures.append(robot.observe(age_ms=20))
        robot.await_chunk(i + 1)
        robot.next_moment(50)
    valid = [seen.valid.tolist() for seen in robot.policy.observations if seen.valid is not None]
    assert valid == [[False, True]] * 2 + [[True, True]] * 3
    assert robot.policy.observations[0].images["front"].shape == (2, 6, 8, 3)
    stamps = [nanoseconds(each) for each in robot.chunks[4].timing.frame_stamps]
    assert stamps == [captures[2], captures[2] + 5 * MS, captures[4], captures[4] + 5 * MS]
    ros.call(Trigger, "policy_node/reset", Trigger.Request())
    robot.observe(age_ms=20)
    robot.await_chunk(6)
    assert robot.policy.observations[5].valid.tolist() == [False, True], "a reset begins an episode"


@pytest.mark.parametrize(
    ("step_period", "words"),
    [
        (
            0.02,
            "C1 (d = 5 <= H = 3) fails by 2 steps, C2 (2 d = 10 <= H) fails by 7 steps. ",
        ),
        (0.1, "C1 (d = 1 <= H = 3) holds, C2 (2 d = 2 <= H) holds. Use time_aligned"),
    ],
)
def test_whether_the_policy_keeps_up_is_said_with_its_first_chunks(
    ros: Any, capfd: pytest.CaptureFixture[str], step_period: float, words: str
) -> None:
    robot = Robot(ros, step_period=step_period)
    for i in range(1 if "fails" in words else 5):
        robot.observe(age_ms=90)
        robot.await_chunk(i + 1)
        robot.next_moment()
    ros.settle()
    assert words in capfd.readouterr().err
    if "fails" in words:
        robot.await_diagnostic("its chunk comes 5 control steps after the capture: C1 (d = 5 <= H = 3) fails")


def test_a_policy_that_keeps_up_no_longer_is_said_too(
    ros: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = [(SupplyWatch(10.0, 3, False), delay_s) for delay_s in (0.05, 0.45)]
    verdicts = [[watch.chunk(delay_s, delay_s) for _ in range(5)] for watch, delay_s in judged]
    good, bad = (next(v for v in found if v is not None) for found in verdicts)
    told = iter([good, bad])
    monkeypatch.setattr(SupplyWatch, "chunk", lambda *_: next(told, None))
    robot = Robot(ros)
    for i in range(3):
        robot.observe()
        robot.await_chunk(i + 1)
        robot.next_moment()
    ros.settle()
    said = capfd.readouterr().err
    assert "C1 (d = 1 <= H = 3) holds" in said
    assert "C1 (d = 5 <= H = 3) fails" in said
