"""policy.launch.py beside the simulated robot: its cameras and joints connected, its arm moved."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory
from vla_simd_ros.msg import ActionChunk, ExecutorState

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.nodes import qos
from vla_simd_ros.sim.demo_policy import image_size, random_checkpoint

pytestmark = pytest.mark.needs_launch


class Watcher:
    """A node that hears what the launched ones say, and speaks to the policy."""

    def __init__(self) -> None:
        self._context = Context()
        rclpy.init(context=self._context)
        self._node = Node("watcher", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self.chunks = self._listen(ActionChunk, "action_chunk")
        self.commands = self._listen(JointTrajectory, "joint_trajectory")
        self.states = self._listen(ExecutorState, "executor_state")
        self._instruction = self._node.create_publisher(String, "instruction", qos.LATCHED)

    def _listen(self, kind: Any, topic: str) -> list[Any]:
        messages: list[Any] = []
        self._node.create_subscription(kind, topic, messages.append, 10)
        return messages

    def instruct(self, text: str) -> None:
        self._instruction.publish(String(data=text))

    def sees(self, condition: Callable[[], Any]) -> Callable[[], bool]:
        """The condition, asked after messages were handled for a moment."""

        def asked() -> bool:
            self._executor.spin_once(timeout_sec=0.05)
            return bool(condition())

        return asked

    def close(self) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    made = Watcher()
    yield made
    made.close()


@contextmanager
def simulated_robot(width: int, height: int, log: Path) -> Iterator[None]:
    """The robot's node in a process of its own; it has ended afterwards."""
    command = [sys.executable, "-m", "vla_simd_ros.nodes.robot_sim_node", "--ros-args"]
    for name, value in (("image_width", width), ("image_height", height)):
        command += ["-p", f"{name}:={value}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
            assert process.poll() is None, f"the simulated robot ended early:\n{log.read_text()}"
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("policy", ["diffusion", "octo", "smolvla", "turbovla"])
def test_a_policy_moves_the_simulated_robot(
    policy: str,
    launch_file: Callable[..., Any],
    watcher: Watcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checkpoint = random_checkpoint(print, policy, small=True)
    with simulated_robot(*image_size(load_checkpoint(checkpoint)), tmp_path / "robot.log"):
        launched = launch_file(
            "policy.launch.py", checkpoint=str(checkpoint), instruction="wave", mode="lagged", threads="1"
        )
        launched.wait_until(watcher.sees(lambda: len(watcher.chunks) > 4), "five chunks")
        launched.wait_until(watcher.sees(lambda: watcher.commands), "commands")
        assert {chunk.policy for chunk in watcher.chunks} == {policy}
        executing = watcher.sees(
            lambda: watcher.states and watcher.states[-1].state == ExecutorState.EXECUTING
        )
        launched.wait_until(executing, "the executor to execute")
        if policy != "diffusion":  # which takes none
            assert watcher.chunks[0].instruction == "wave"
            watcher.instruct("put the red cube on the left pad")
            changed = watcher.sees(
                lambda: watcher.chunks[-1].instruction == "put the red cube on the left pad"
            )
            launched.wait_until(changed, "a chunk for the new instruction")
        report = f"{policy}: a query takes"
        launched.wait_until(watcher.sees(lambda: report in launched.output()), "the supply report")
        launched.interrupt()
