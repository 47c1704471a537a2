"""The simulated robot as others see it on its topics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy", reason="needs ROS 2 (./run pytest)")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus  # noqa: E402
from rclpy.context import Context  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data  # noqa: E402
from rclpy.time import Time  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from sensor_msgs.msg import Image, JointState  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint  # noqa: E402

from vla_simd_ros.nodes.robot_sim_images import image_message  # noqa: E402
from vla_simd_ros.nodes.robot_sim_node import PARAMETERS, RobotSimNode  # noqa: E402
from vla_simd_ros.sim.arm import HOME, JOINT_NAMES  # noqa: E402
from vla_simd_ros.sim.mjcf import TIMESTEP  # noqa: E402
from vla_simd_ros.sim.pacing import MAX_LAG  # noqa: E402
from vla_simd_ros.sim.physics import SimulationError  # noqa: E402
from vla_simd_ros.sim.scene import PADS  # noqa: E402
from vla_simd_ros.sim.tasks import INSTRUCTIONS, TaskScene  # noqa: E402


def start_of(seed: int) -> np.ndarray:
    """Where the arm is in the scene of a seed."""
    scene = TaskScene(width=8, height=8, renderer="opencv")
    scene.reset(seed)
    return scene.robot.joint_positions


START = start_of(0)
TARGET = [0.3, -0.2, 0.4, 0.7, 0.2, 0.8]
PATIENCE = 20.0


class Bench:
    """A simulated robot, and a node that listens to it and commands it, in one executor."""

    def __init__(self, **parameters: Any) -> None:
        self.context = Context()
        rclpy.init(context=self.context)
        small = {"image_width": 32, "image_height": 24, "renderer": "opencv", **parameters}
        overrides = [Parameter(name, value=value) for name, value in small.items()]
        self.robot = RobotSimNode(context=self.context, parameter_overrides=overrides)
        self.node = rclpy.create_node("listener", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.robot)
        self.executor.add_node(self.node)
        self.joints: list[JointState] = []
        self.node.create_subscription(JointState, "joint_states", self.joints.append, QoSProfile(depth=10))
        self.commands = self.node.create_publisher(JointTrajectory, "joint_trajectory", QoSProfile(depth=1))
        self.wait_for(lambda: self.commands.get_subscription_count() > 0)

    def listen(self, message_type: type, topic: str) -> list[Any]:
        received: list[Any] = []
        self.node.create_subscription(message_type, topic, received.append, qos_profile_sensor_data)
        return received

    def wait_for(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "what the test waits for did not happen"
            self.executor.spin_once(timeout_sec=0.05)

    def command(self, positions: list[float], names: tuple[str, ...] = JOINT_NAMES, stamp: int = 0) -> None:
        message = JointTrajectory(joint_names=list(names), points=[JointTrajectoryPoint(positions=positions)])
        message.header.stamp = Time(nanoseconds=stamp).to_msg()
        self.commands.publish(message)

    def spin(self, joint_states: int) -> None:
        seen = len(self.joints)
        self.wait_for(lambda: len(self.joints) >= seen + joint_states)

    def diagnostics(self) -> dict[str, str]:
        received = self.listen(DiagnosticArray, "/diagnostics")
        self.wait_for(lambda: bool(received))
        return {value.key: value.value for value in received[-1].status[0].values}

    def reset_scene(self, seed: int) -> str:
        """Asks for the scene of a seed as others do; what the service answers."""
        assert self.robot.set_parameters([Parameter("scene_seed", value=seed)])[0].successful
        client = self.node.create_client(Trigger, "robot_sim_node/reset_scene")
        self.wait_for(client.service_is_ready)
        answer = client.call_async(Trigger.Request())
        self.wait_for(answer.done)
        assert answer.result().success
        return str(answer.result().message)

    def tasks(self) -> list[dict[str, str]]:
        """What ~/achieved says, from its last message on, by key."""
        received: list[dict[str, str]] = []

        def note(message: DiagnosticArray) -> None:
            received.append({value.key: value.value for value in message.status[0].values})

        latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.node.create_subscription(DiagnosticArray, "robot_sim_node/achieved", note, latched)
        return received

    def close(self) -> None:
        assert self.robot.stop()
        self.executor.shutdown()
        self.robot.destroy_node()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def bench() -> Iterator[Bench]:
    opened = Bench()
    yield opened
    opened.close()


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    opened: list[Bench] = []

    def make(**parameters: Any) -> Bench:
        opened.append(Bench(**parameters))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def nanoseconds(message: Any) -> int:
    return int(Time.from_msg(message.header.stamp).nanoseconds)


def test_joint_states(bench: Bench) -> None:
    bench.spin(10)
    for message in bench.joints:
        assert tuple(message.name) == JOINT_NAMES
        assert len(message.position) == len(message.velocity) == len(JOINT_NAMES)
    np.testing.assert_allclose(bench.joints[0].position, START, atol=0.05)


def test_joint_states_are_stamped_with_their_instants(bench: Bench) -> None:
    bench.spin(20)
    stamps = [nanoseconds(message) for message in bench.joints]
    assert stamps[-1] <= bench.robot.get_clock().now().nanoseconds
    gaps = np.diff(stamps)
    # Multiples of the period, to the nanosecond: the stamps come from the simulation, not from the sender's
    # clock at the time of sending. (A message may be lost, or the machine stall.)
    assert (gaps > 0).all()
    assert np.median(np.abs(gaps - np.round(gaps / 10_000_000) * 10_000_000)) <= 2


def test_pictures(bench: Bench) -> None:
    pictures = {name: bench.listen(Image, f"camera/{name}/image_raw") for name in ("front", "wrist")}
    bench.wait_for(lambda: all(len(received) >= 3 for received in pictures.values()))
    for name, received in pictures.items():
        message = received[-1]
        assert (message.height, message.width, message.encoding) == (24, 32, "rgb8")
        assert message.step == 3 * 32
        assert len(message.data) == 24 * 32 * 3
        assert message.header.frame_id == f"{name}_camera"
        assert len(set(message.data)) > 10
        stamps = [nanoseconds(each) for each in received]
        assert stamps == sorted(set(stamps))
        assert 0 < stamps[-1] <= bench.robot.get_clock().now().nanoseconds
    assert {nanoseconds(each) for each in pictures["front"]} & {
        nanoseconds(each) for each in pictures["wrist"]
    }


def test_commands_move_the_arm(bench: Bench) -> None:
    # Renewed at every joint state, as a controller does: a single command is dropped after the timeout.
    def arrived() -> bool:
        bench.command(TARGET)
        return bool(bench.joints) and np.allclose(bench.joints[-1].position, TARGET, atol=0.06)

    bench.wait_for(arrived)


def test_joints_of_a_command_may_come_in_any_order(bench: Bench) -> None:
    bench.command(TARGET[::-1], names=JOINT_NAMES[::-1])
    bench.wait_for(lambda: bool(bench.joints) and bench.joints[-1].position[0] > 0.1)


@pytest.mark.parametrize(
    ("positions", "names"),
    [
        ([0.0, float("nan"), 0.0, 0.0, 0.0, 0.0], JOINT_NAMES),
        ([0.5] * 6, (*JOINT_NAMES[:5], "thumb")),
        ([0.5] * 5, JOINT_NAMES[:5]),
        ([0.5] * 5, JOINT_NAMES),
    ],
    ids=["nan", "unknown joint", "missing joint", "too few positions"],
)
def test_bad_commands_are_counted_and_the_arm_holds(
    bench: Bench, positions: list[float], names: tuple[str, ...]
) -> None:
    bench.command(positions, names=names)
    bench.wait_for(lambda: bench.diagnostics()["commands rejected"] == "1")
    bench.spin(20)
    np.testing.assert_allclose(bench.joints[-1].position, START, atol=0.05)
    bench.command(TARGET)
    bench.wait_for(lambda: bench.joints[-1].position[0] > 0.1)


@pytest.mark.parametrize("offset", [-5.0, 5.0])
def test_commands_for_another_time_are_rejected(bench: Bench, offset: float) -> None:
    bench.command(TARGET, stamp=bench.robot.get_clock().now().nanoseconds + int(offset * 1e9))
    bench.wait_for(lambda: bench.diagnostics()["commands rejected"] == "1")


def test_stamped_commands_are_accepted(bench: Bench) -> None:
    bench.command(TARGET, stamp=bench.robot.get_clock().now().nanoseconds)
    bench.wait_for(lambda: bench.diagnostics()["commands accepted"] == "1")


def test_a_command_that_is_not_renewed_times_out_and_the_arm_holds(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(command_timeout=0.2)
    message = JointTrajectory(joint_names=list(JOINT_NAMES))
    far = JointTrajectoryPoint(positions=[1.5, *HOME[1:].tolist()])
    far.time_from_start.sec = 10
    message.points = [far]
    bench.commands.publish(message)
    bench.wait_for(lambda: bench.diagnostics()["commands timed out"] == "1")
    bench.spin(100)
    assert abs(bench.joints[-1].position[0]) < 0.2


def test_a_stopped_camera_is_silent_and_can_be_restarted(bench: Bench) -> None:
    front, wrist = (bench.listen(Image, f"camera/{name}/image_raw") for name in ("front", "wrist"))
    bench.wait_for(lambda: bool(wrist))
    assert bench.robot.set_parameters([Parameter("stopped_cameras", value=["wrist"])])[0].successful
    bench.spin(10)  # what was on its way
    seen = len(wrist)
    count = len(front)
    bench.wait_for(lambda: len(front) >= count + 3)
    assert len(wrist) == seen
    status = bench.listen(DiagnosticArray, "/diagnostics")
    bench.wait_for(lambda: bool(status))
    assert status[-1].status[0].level == DiagnosticStatus.WARN
    assert "wrist" in status[-1].status[0].message
    assert bench.robot.set_parameters([Parameter("stopped_cameras", value=[""])])[0].successful
    bench.wait_for(lambda: len(wrist) > seen)


def test_a_stall_is_told_and_pictures_keep_their_phase(bench: Bench) -> None:
    pictures = bench.listen(Image, "camera/front/image_raw")
    statuses = bench.listen(DiagnosticArray, "/diagnostics")
    bench.wait_for(lambda: bool(pictures))
    before = nanoseconds(pictures[-1])
    time.sleep(MAX_LAG + 0.1)
    resumed = bench.robot.get_clock().now().nanoseconds
    bench.wait_for(lambda: nanoseconds(pictures[-1]) > resumed)
    # The steps of the physics on which pictures are taken: none is early, or late by a step.
    periods = (nanoseconds(pictures[-1]) - before) * 1e-9 * bench.robot.get_parameter("camera_rate").value
    assert abs(periods - round(periods)) <= 1.001 * TIMESTEP * 30.0

    def told() -> list[DiagnosticStatus]:
        every = (status for message in statuses for status in message.status)
        return [each for each in every if "behind its clock and gave" in each.message]

    bench.wait_for(lambda: bool(told()))
    assert told()[0].level == DiagnosticStatus.WARN
    values = {value.key: value.value for value in told()[0].values}
    assert int(values["stalls"]) >= 1 and float(values["seconds given up"]) > MAX_LAG - 1.0 / 30.0


def test_an_unknown_camera_cannot_be_stopped(bench: Bench) -> None:
    result = bench.robot.set_parameters([Parameter("stopped_cameras", value=["top"])])[0]
    assert not result.successful
    assert result.reason == "stopped_cameras: got top, expected some of front, wrist"


def test_the_scene_is_reset_to_that_of_a_seed_while_time_goes_on(bench: Bench) -> None:
    bench.command(TARGET)
    bench.wait_for(lambda: bool(bench.joints) and bench.joints[-1].position[0] > START[0] + 0.05)
    before = nanoseconds(bench.joints[-1])
    assert bench.reset_scene(7) == "scene of seed 7, reset 1"
    bench.spin(5)
    # At rest where that scene starts: the earlier command moves nothing any more.
    np.testing.assert_allclose(bench.joints[-1].position, start_of(7), atol=0.03)
    assert nanoseconds(bench.joints[-1]) > before
    bench.command(TARGET)
    bench.wait_for(lambda: bench.joints[-1].position[0] > start_of(7)[0] + 0.05)
    assert bench.reset_scene(7) == "scene of seed 7, reset 2"


def test_reached_goals_are_told_also_to_who_comes_later(bench: Bench) -> None:
    bench.spin(5)
    heard = bench.tasks()
    bench.wait_for(lambda: bool(heard))
    assert heard[-1] == {**dict.fromkeys(INSTRUCTIONS, "false"), "scene_seed": "0", "resets": "0"}
    cubes = bench.robot._robot.snapshot().cubes
    cubes[1, :2] = PADS[1].center
    bench.robot._robot.place(START, cubes)
    goal = "put the green cube on the right pad"
    bench.wait_for(lambda: heard[-1][goal] == "true")
    assert [key for key, value in heard[-1].items() if value == "true"] == [goal]
    late = bench.tasks()
    bench.wait_for(lambda: bool(late))
    assert late[0][goal] == "true"
    bench.reset_scene(3)
    bench.wait_for(lambda: heard[-1]["resets"] == "1")
    assert heard[-1] == {**dict.fromkeys(INSTRUCTIONS, "false"), "scene_seed": "3", "resets": "1"}


def test_a_scene_has_no_negative_seed(bench: Bench) -> None:
    result = bench.robot.set_parameters([Parameter("scene_seed", value=-1)])[0]
    assert not result.successful
    assert result.reason == "scene_seed: got -1, expected zero or more"


def test_simulated_time_is_published_and_stamps_are_on_it(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(publish_clock=True, real_time_factor=2.0)
    clocks = bench.listen(Clock, "/clock")
    bench.wait_for(lambda: len(clocks) >= 5)
    bench.spin(5)
    assert 0 < nanoseconds(bench.joints[-1]) < int(PATIENCE * 10 * 1e9)
    ticks = [int(Time.from_msg(message.clock).nanoseconds) for message in clocks]
    assert ticks == sorted(ticks)
    assert nanoseconds(bench.joints[-1]) % 2_000_000 == 0  # whole time steps


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"renderer": "vulkan"}, "renderer: got 'vulkan'"),
        ({"camera_rate": 0.0}, "rate of frames: got 0.0 Hz"),
        ({"joint_state_rate": 1000.0}, "rate of joints: got 1000.0 Hz"),
        ({"image_width": 0}, "camera picture: got 0x24"),
        ({"command_timeout": -1.0}, "command_timeout: got -1.0 s"),
        ({"real_time_factor": 2.0}, "real_time_factor: got 2.0, expected 1 without publish_clock"),
        ({"stopped_cameras": ["top"]}, "stopped_cameras: got top"),
        ({"scene_seed": -2}, "scene_seed: got -2, expected zero or more"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    context = Context()
    rclpy.init(context=context)
    try:
        small = {"image_width": 32, "image_height": 24, "renderer": "opencv", **parameters}
        with pytest.raises((SimulationError, ValueError), match=message):
            RobotSimNode(
                context=context,
                parameter_overrides=[Parameter(name, value=value) for name, value in small.items()],
            )
    finally:
        rclpy.shutdown(context=context)


def test_every_parameter_is_in_the_parameter_file() -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, which comes with ROS")
    folder = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    with open(os.path.join(folder, "config", "robot_sim.yaml"), encoding="utf-8") as file:
        values = yaml.safe_load(file)["/**"]["ros__parameters"]
    assert values == {name: default for name, (default, _) in PARAMETERS.items()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_process_ends_when_told(number: int) -> None:
    command = [
        sys.executable,
        "-m",
        "vla_simd_ros.nodes.robot_sim_node",
        "--ros-args",
        "-p",
        "renderer:=opencv",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "simulating" in line:
            break
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE) == 0
    process.stderr.close()


def test_the_process_says_why_it_cannot_start() -> None:
    command = [
        sys.executable,
        "-m",
        "vla_simd_ros.nodes.robot_sim_node",
        "--ros-args",
        "-p",
        "renderer:=vulkan",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    assert done.returncode == 1
    assert "robot_sim_node: renderer: got 'vulkan', expected one of auto, egl, opencv" in done.stderr


def test_picture_message_keeps_every_byte() -> None:
    picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    message = image_message(picture, Time(nanoseconds=5).to_msg(), "eye")
    assert bytes(message.data) == picture.tobytes()
    assert (message.height, message.width, message.step) == (2, 3, 9)
