"""The launch files, run with the real launch."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rclpy
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import parameter_value_to_python
from trajectory_msgs.msg import JointTrajectory
from vla_simd_ros.msg import ActionChunk, HybridState

pytestmark = pytest.mark.needs_launch

LAUNCH = Path(__file__).parents[2] / "launch"
PATIENCE_S = 30.0
REQUIRED = {"checkpoint", "cameras", "instruction", "control_rate", "mode", "precision", "dry_run"}
OWN = {
    "policy.launch.py": {"threads", "query_pacing", "query_threshold"},
    "demo.launch.py": {"threads", "policy"},
    "hybrid.launch.py": {"prefix_executor", "suffix_cpus", "reserved_cpus", "nice", "costs"},
    "autoware.launch.py": {"kinematic_state", "command", "trajectory", "prefix_executor"},
}


class Observer:
    """A node of this process that looks at the launched ones."""

    def __init__(self) -> None:
        self.context = Context()
        rclpy.init(context=self.context)
        self.node = Node("observer", context=self.context)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)

    def spin(self) -> None:
        self._executor.spin_once(timeout_sec=0.05)

    def listen(self, kind: Any, topic: str) -> list[Any]:
        messages: list[Any] = []
        self.node.create_subscription(kind, topic, messages.append, 10)
        return messages

    def call(self, kind: Any, service: str, request: Any, patience: float = 0.2) -> Any:
        """The answer, or None when there is no such service within that time (s)."""
        client = self.node.create_client(kind, service)
        try:
            if not client.wait_for_service(timeout_sec=patience):
                return None
            future = client.call_async(request)
            self._executor.spin_until_future_complete(future, PATIENCE_S)
            return future.result() if future.done() else None
        finally:
            self.node.destroy_client(client)

    def state(self, node: str) -> str:
        answer = self.call(GetState, f"{node}/get_state", GetState.Request())
        return answer.current_state.label if answer else ""

    def parameters(self, node: str, *names: str) -> list[Any]:
        request = GetParameters.Request(names=names)
        answer = self.call(GetParameters, f"{node}/get_parameters", request, PATIENCE_S)
        assert answer is not None, f"{node} does not answer for its parameters"
        return [parameter_value_to_python(value) for value in answer.values]

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def observer() -> Iterator[Observer]:
    observer = Observer()
    yield observer
    observer.close()


@pytest.mark.parametrize("name", OWN)
def test_arguments_are_declared_and_described(name: str) -> None:
    from launch import LaunchContext
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    from launch.utilities import perform_substitutions

    description = PythonLaunchDescriptionSource(str(LAUNCH / name)).get_launch_description(LaunchContext())
    arguments = {argument.name: argument for argument in description.get_launch_arguments()}
    assert set(arguments) >= REQUIRED | OWN[name]
    for argument in arguments.values():
        assert len(argument.description) > 10, f"{argument.name} is not described"
        assert argument.default_value is not None, f"{argument.name} must be given"
    if name == "demo.launch.py":
        instruction = perform_substitutions(LaunchContext(), arguments["instruction"].default_value)
        assert instruction, "the demo's policy needs an instruction to start with"


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("dry_run", "maybe", "launch argument dry_run: got 'maybe', expected true or false"),
        ("control_rate", "fast", "launch argument control_rate: got 'fast', expected a number (float)"),
        ("threads", "2.5", "launch argument threads: got '2.5', expected a number (int)"),
        ("max_passes", "many", "launch argument max_passes: got 'many', expected a number (int)"),
        ("suffix_cpus", "1;2", "launch argument suffix_cpus: got '1;2', expected numbers with commas"),
    ],
)
def test_wrong_argument_is_named(
    launch_file: Callable[..., Any], argument: str, value: str, expected: str
) -> None:
    name = "hybrid.launch.py" if argument == "suffix_cpus" else "policy.launch.py"
    launched = launch_file(name, **{argument: value})
    assert launched.wait() != 0
    assert expected in launched.output()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nodes_end_with_the_launch_however_it_ends(
    launch_file: Callable[..., Any], observer: Observer, number: signal.Signals
) -> None:
    launched = launch_file("policy.launch.py", autostart="false")
    names = ("chunk_executor_node", "policy_node")
    launched.wait_until(lambda: all(observer.state(name) for name in names), "both nodes")
    started = launched.nodes()
    assert set(started) == set(names)
    assert launched.end(number) != 0
    deadline = time.monotonic() + PATIENCE_S
    while left := [name for name in names if _runs(started[name])]:
        assert time.monotonic() < deadline, f"{left} outlived the launch:\n{launched.output()}"
        time.sleep(0.05)


def _runs(process: int) -> bool:
    """Whether it does; one that ended and that nobody has asked for is no process any more."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_prefix_of_the_launch_comes_after_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from launch import LaunchContext

    from vla_simd_ros.nodes.launch_parts import prefix

    context = LaunchContext()
    ours = prefix(context, "policy_node").split()
    assert ours[1:] == ["--pdeathsig", "INT", "--"] and Path(ours[0]).name == "setpriv"
    context.launch_configurations["launch-prefix"] = "nice -n 5"
    assert prefix(context, "policy_node").split() == [*ours, "nice", "-n", "5"]
    context.launch_configurations["launch-prefix-filter"] = "chunk_.*"
    assert prefix(context, "policy_node").split() == ours
    assert prefix(context, "chunk_executor_node").split() == [*ours, "nice", "-n", "5"]
    monkeypatch.setenv("PATH", "")  # a system without setpriv
    assert prefix(context, "policy_node").split() == []
    assert prefix(context, "chunk_executor_node").split() == ["nice", "-n", "5"]


def test_demo_runs_with_its_arguments_and_ends_on_interrupt(
    launch_file: Callable[..., Any], observer: Observer, small_policy: Path
) -> None:
    chunks = observer.listen(ActionChunk, "arm/action_chunk")
    commands = observer.listen(JointTrajectory, "arm/joint_trajectory")
    launched = launch_file(
        "demo.launch.py",
        checkpoint=str(small_policy),
        namespace="arm",
        instruction="wave",
        control_rate="20.0",
        mode="lagged",
        threads="1",
    )

    def running() -> bool:
        observer.spin()
        return bool(chunks and commands)

    launched.wait_until(running, "chunks and commands")
    assert chunks[0].instruction == "wave"
    assert observer.state("arm/policy_node") == "active"
    assert observer.state("arm/chunk_executor_node") == "active"
    assert observer.parameters("arm/chunk_executor_node", "control_rate", "mode", "dry_run") == [
        20.0,
        "lagged",
        False,
    ]
    assert observer.parameters("arm/policy_node", "threads", "precision") == [1, "fp32"]
    assert observer.parameters("arm/robot_sim_node", "image_width", "image_height") == [96, 64]
    launched.interrupt()
    for node in ("policy_node", "chunk_executor_node", "robot_sim_node"):
        assert f"{node}" in launched.output()
    assert launched.output().count("process has finished cleanly") == 3, launched.output()


def test_hybrid_scheduler_starts_with_its_arguments(
    launch_file: Callable[..., Any], observer: Observer, small_policy: Path
) -> None:
    states = observer.listen(HybridState, "arm/hybrid_state")
    cpus = sorted(os.sched_getaffinity(0))
    launched = launch_file(
        "hybrid.launch.py",
        checkpoint=str(small_policy),
        namespace="arm",
        instruction="wave",
        prefix_cpus=str(cpus[0]),
        nice="3",
        dry_run="true",
    )

    def running() -> bool:
        observer.spin()
        return bool(states)

    launched.wait_until(running, "the state of the hybrid scheduler")
    assert observer.state("arm/hybrid_scheduler_node") == "active"
    assert observer.parameters("arm/hybrid_scheduler_node", "prefix_cpus", "nice", "suffix_executor") == [
        [cpus[0]],
        3,
        "simd",
    ]
    assert observer.parameters("arm/chunk_executor_node", "dry_run") == [True]
    launched.interrupt()
    assert launched.output().count("process has finished cleanly") == 2, launched.output()


def test_a_planner_beside_autoware_has_its_topics(
    launch_file: Callable[..., Any], observer: Observer, small_planner: Path
) -> None:
    """Frames and the kinematic state in, a plan out, by Autoware's names; without its messages a path."""
    pytest.importorskip("nav_msgs", reason="nav_msgs is not installed")
    topic = "/planning/scenario_planning/scenario_selector/trajectory"
    launched = launch_file("autoware.launch.py", checkpoint=str(small_planner), instruction="keep the lane")
    launched.wait_until(lambda: observer.state("vla/hybrid_scheduler_node") == "active", "the planner")
    launched.wait_until(lambda: observer.state("vla/chunk_executor_node") == "active", "the executor")
    published = dict(observer.node.get_topic_names_and_types())
    kind = (
        "autoware_planning_msgs/msg/Trajectory"
        if importlib.util.find_spec("autoware_planning_msgs")
        else "nav_msgs/msg/Path"
    )
    assert published[topic] == [kind]
    assert published["/localization/kinematic_state"] == ["nav_msgs/msg/Odometry"]
    assert published["/vla/command"] == ["std_msgs/msg/String"]
    commands = [
        name for name, kinds in published.items() if "/control/" in name or "control_msgs" in "".join(kinds)
    ]
    assert not commands, "nothing commands the vehicle"
    assert f"the plan goes to {topic} as {kind.replace('/msg/', '/')}" in launched.output()


def test_policy_without_autostart_waits_for_a_manager(
    launch_file: Callable[..., Any], observer: Observer, small_policy: Path
) -> None:
    launched = launch_file(
        "policy.launch.py", checkpoint=str(small_policy), autostart="false", dry_run="true"
    )
    launched.wait_until(lambda: observer.state("policy_node") != "", "the policy node")
    launched.wait_until(lambda: observer.state("chunk_executor_node") != "", "the chunk executor")
    assert observer.state("policy_node") == "unconfigured"
    assert observer.state("chunk_executor_node") == "unconfigured"
    assert observer.parameters("chunk_executor_node", "dry_run") == [True]


def test_missing_checkpoint_leaves_the_nodes_usable(
    launch_file: Callable[..., Any], observer: Observer, tmp_path: Path
) -> None:
    missing = tmp_path / "nowhere"
    launched = launch_file("policy.launch.py", checkpoint=str(missing))
    launched.wait_until(lambda: str(missing) in launched.output(), "the error that names the folder")
    launched.wait_until(lambda: observer.state("policy_node") == "unconfigured", "the policy node to be back")


@pytest.mark.needs_ros2cli
def test_ros2_command(launch_file: Callable[..., Any], observer: Observer, small_policy: Path) -> None:
    def ros2(*arguments: str) -> str:
        """What the command printed; tried again while it has not discovered the nodes yet."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                ["ros2", *arguments], capture_output=True, text=True, timeout=60, check=False
            )
            if done.returncode == 0:
                return done.stdout
            problem = f"ros2 {' '.join(arguments)}: {done.stdout}{done.stderr}"
            assert time.monotonic() < deadline, problem

    launched = launch_file("demo.launch.py", checkpoint=str(small_policy))
    chunks = observer.listen(ActionChunk, "action_chunk")

    def running() -> bool:
        observer.spin()
        return bool(chunks)

    launched.wait_until(running, "chunks")
    # Without the background process of the command, which would outlive the test.
    alone = ("--no-daemon", "--spin-time", "3")
    assert "active [3]" in ros2("lifecycle", "get", *alone, "/policy_node")
    assert "Double value is: 30.0" in ros2("param", "get", *alone, "/chunk_executor_node", "control_rate")
    assert "vla_simd_ros/msg/QueryTiming" in ros2("topic", "info", *alone, "/query_timing")
    assert "total_ms" in ros2("topic", "echo", "--once", "/query_timing", "vla_simd_ros/msg/QueryTiming")
    assert "success=True" in ros2("service", "call", "/hold", "std_srvs/srv/SetBool", "{data: true}")
    ros2("lifecycle", "set", *alone, "/policy_node", "deactivate")
    ros2("lifecycle", "set", *alone, "/policy_node", "cleanup")
    ros2("lifecycle", "set", *alone, "/policy_node", "configure")
    # The launch file activates a node once; after that it is the user's.
    assert "inactive [2]" in ros2("lifecycle", "get", *alone, "/policy_node")
