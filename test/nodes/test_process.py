"""Node processes end soon after SIGINT and SIGTERM, whatever they are doing."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from sensor_msgs.msg import Image, JointState
from vla_simd_ros.msg import ActionChunk

from vla_simd_ros.nodes import qos

# Far longer than a test waits: a process that ends did not wait for the policy.
FOREVER_S = 600
PATIENCE_S = 60.0

# A policy whose loading or whose queries are a call that only returns after ten minutes.
POLICY = f"""
import sys, threading, time
from types import SimpleNamespace
from vla_simd_ros.inference import Cancelled
from vla_simd_ros.nodes.policy_node import PolicyNode
from vla_simd_ros.nodes.process import run_node
from vla_simd_ros.policies.base import CameraSpec, PolicySpec

class Slow:
    name = "slow"
    supports_prefix = False
    solver = None
    action_tokens = None
    spec = PolicySpec("slow", {{"front": CameraSpec(6, 8)}}, 1, 0, 1, 4, 4)
    instruction_truncated = False
    int8 = ()
    def warm_up(self): pass
    def close(self): pass
    def cancel(self): pass
    def resume(self): pass
    def query(self, observation):
        print("IN QUERY", flush=True)
        time.sleep({FOREVER_S})

class Cancellable(Slow):
    cancelled = threading.Event()
    def close(self): print("CLOSED", flush=True)
    def cancel(self): self.cancelled.set()
    def resume(self): self.cancelled.clear()
    def query(self, observation):
        print("IN QUERY", flush=True)
        self.cancelled.wait({FOREVER_S})
        raise Cancelled("the run was cancelled")

def load(folder, **options):
    if folder == "slow":
        print("IN LOAD", flush=True)
        time.sleep({FOREVER_S})
    return Cancellable() if folder == "cancellable" else Slow()

sys.exit(run_node(lambda: PolicyNode(load=load), sys.argv))
"""


class NodeProcess:
    """A node in a process of its own, and the lines it prints."""

    def __init__(self, command: list[str], namespace: str) -> None:
        remapping = ["--ros-args", "-r", f"__ns:={namespace}"]
        self.process = subprocess.Popen(
            [sys.executable, *command, *remapping],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.namespace = namespace
        self.lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def says(self, words: str) -> bool:
        while not self.lines.empty():
            self.seen.append(self.lines.get())
        assert self.process.poll() is None, "".join(self.seen)
        return any(words in line for line in self.seen)

    def said(self, words: str) -> bool:
        """Whether the process, which has ended, said this in all its time."""
        self._reader.join(PATIENCE_S)
        return any(words in line for line in [*self.seen, *self.lines.queue])


NUMBERS = itertools.count()


@contextmanager
def running(command: list[str]) -> Iterator[NodeProcess]:
    """A node in a namespace of its own, so that it is not taken for one of another test."""
    node = NodeProcess(command, f"/process_{next(NUMBERS)}")
    try:
        yield node
    finally:
        node.process.kill()
        node.process.wait()


def ends_on(node: NodeProcess, number: signal.Signals) -> int:
    os.kill(node.process.pid, number)
    return node.process.wait(PATIENCE_S)


def change(ros: Any, node: NodeProcess, name: str, *transitions: int) -> None:
    for transition in transitions:
        request = ChangeState.Request()
        request.transition.id = transition
        assert ros.call(ChangeState, f"{node.namespace}/{name}/change_state", request).success


def wait(ros: Any, node: NodeProcess, words: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not node.says(words):
        assert time.monotonic() < deadline, "".join(node.seen)
        meanwhile()
        ros.settle(5)


CONFIGURE, ACTIVATE = Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE


@pytest.mark.parametrize(
    ("policy", "number"),
    [("fast", signal.SIGINT), ("fast", signal.SIGTERM), ("cancellable", signal.SIGINT)],
)
def test_the_policy_node_ends_in_the_middle_of_a_query(ros: Any, policy: str, number: signal.Signals) -> None:
    parameters = ["--ros-args", "-p", f"checkpoint:={policy}", "-p", "joints:=[a]"]
    with running(["-c", POLICY, *parameters]) as node:
        change(ros, node, "policy_node", CONFIGURE, ACTIVATE)
        frames = ros.publisher(Image, f"{node.namespace}/camera/front/image_raw", qos.STATE)
        joints = ros.publisher(JointState, f"{node.namespace}/joint_states", qos.STATE)

        def observe() -> None:
            now = ros.helper.get_clock().now().to_msg()
            state = JointState(name=["a"], position=[0.0])
            frame = Image(height=6, width=8, encoding="rgb8", step=24, data=bytes(144))
            state.header.stamp = frame.header.stamp = now
            joints.publish(state)
            frames.publish(frame)

        wait(ros, node, "IN QUERY", observe)
        assert ends_on(node, number) == 0
        # One whose query can be cancelled is taken down in order, the other one left as it is.
        assert node.said("CLOSED") == (policy == "cancellable")


def test_the_policy_node_ends_in_the_middle_of_loading(ros: Any) -> None:
    with running(["-c", POLICY, "--ros-args", "-p", "checkpoint:=slow"]) as node:
        client = ros.helper.create_client(ChangeState, f"{node.namespace}/policy_node/change_state")
        ros.spin_until(client.service_is_ready, "the service")
        request = ChangeState.Request()
        request.transition.id = CONFIGURE
        client.call_async(request)
        wait(ros, node, "IN LOAD")
        assert ends_on(node, signal.SIGINT) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_chunk_executor_ends_while_active(ros: Any, number: signal.Signals) -> None:
    with running(["-m", "vla_simd_ros.nodes.chunk_executor_node"]) as node:
        change(ros, node, "chunk_executor_node", CONFIGURE, ACTIVATE)
        ros.publisher(ActionChunk, f"{node.namespace}/action_chunk", qos.CHUNK)
        assert ends_on(node, number) == 0


def test_an_idle_node_ends(ros: Any) -> None:
    with running(["-m", "vla_simd_ros.nodes.policy_node"]) as node:
        client = ros.helper.create_client(ChangeState, f"{node.namespace}/policy_node/change_state")
        ros.spin_until(client.service_is_ready, "the service")
        assert ends_on(node, signal.SIGINT) == 0


# The middleware takes its time to start.
STARTING = f"""
import sys, time
import rclpy
from vla_simd_ros.nodes.process import run_node

def init(**options):
    print("IN INIT", flush=True)
    time.sleep({FOREVER_S})

rclpy.init = init
sys.exit(run_node(lambda: None, sys.argv))
"""


def test_a_node_ends_while_the_middleware_starts(ros: Any) -> None:
    with running(["-c", STARTING]) as node:
        wait(ros, node, "IN INIT")
        assert ends_on(node, signal.SIGINT) == 0
        assert not node.said("Traceback")


# Stands where a module of native code would, in whose loading exceptions get lost.
LOSING = """
import time
while True:
    try:
        print("LOADING", flush=True)
        time.sleep(600)
    except BaseException:
        pass
"""


@pytest.mark.parametrize("module", ["policy_node", "demo_main"])
def test_a_module_that_is_run_as_a_program_ends_while_it_is_loaded(tmp_path: Path, module: str) -> None:
    (tmp_path / "rclpy.py").write_text(LOSING)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    # A process that is started in the background of a script may ignore interrupts: not this one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", f"vla_simd_ros.nodes.{module}"],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "LOADING\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == -signal.SIGINT
    finally:
        process.kill()
        process.wait()


# A node whose own code fails while it runs.
FAULTY = """
import sys
from rclpy.node import Node
from vla_simd_ros.nodes.process import run_node

class Faulty(Node):
    def __init__(self):
        super().__init__("faulty")
        self.create_timer(0.01, self.fail)
    def fail(self):
        raise KeyError("a fault")
    def stop(self):
        print("AT REST", flush=True)
        return True

sys.exit(run_node(Faulty, sys.argv))
"""


def test_an_unforeseen_error_brings_the_arm_to_rest_before_the_process_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FAULTY], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 1
    assert ended.stdout == "AT REST\n"
    assert "KeyError: 'a fault'" in ended.stderr
