"""The executor's code against messages that nobody should send: limits hold, nothing raises, memory is flat.

Messages are built in this process and handed to the node's callbacks: the network would only slow them down.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from builtin_interfaces.msg import Time
from hypothesis import given, settings
from hypothesis import strategies as st
from sensor_msgs.msg import JointState
from std_msgs.msg import String, UInt64
from std_srvs.srv import SetBool
from vla_simd_ros.msg import ActionChunk

from vla_simd_ros.nodes.executor_pipeline import ExecutorPipeline
from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from
from vla_simd_ros.nodes.messages import stamp

MS = 1_000_000
RATE = 20.0
PERIOD = 50 * MS
JOINTS = ["pan", "lift", "grip"]
LOWER, UPPER = np.array([-1.0, -0.5, 0.0]), np.array([1.0, 2.0, 0.8])
VELOCITY, ACCELERATION = np.array([2.0, 1.0, 3.0]), np.array([15.0, 4.0, 60.0])
SETTINGS: dict[str, Any] = {
    "joints": JOINTS,
    "control_rate": RATE,
    "position_lower": LOWER.tolist(),
    "position_upper": UPPER.tolist(),
    "velocity_limit": VELOCITY.tolist(),
    "acceleration_limit": ACCELERATION.tolist(),
    "starvation_timeout": 0.3,
}


class Silent:
    """A logger that keeps nothing."""

    def info(self, text: str, **_: Any) -> None:
        assert isinstance(text, str)

    warning = error = info


class Publisher:
    """Passes messages on to a function."""

    def __init__(self, receive: Callable[[Any], None]) -> None:
        self.publish = receive

    def get_subscription_count(self) -> int:
        return 1


class LoneNode:
    """What the pipeline needs of a node, without a network: callbacks by topic, and a clock the test sets."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.callbacks: dict[str, Callable[[Any], None]] = {}
        self.services: dict[str, Callable[[Any, Any], Any]] = {}
        self.timers: list[Callable[[], None]] = []
        self.commands: list[np.ndarray | None] = []
        self.publishers = 1

    def create_publisher(self, kind: Any, topic: str, profile: Any) -> Publisher:
        return Publisher(self._command if topic == "joint_trajectory" else lambda message: None)

    def create_subscription(self, kind: Any, topic: str, callback: Any, profile: Any, **_: Any) -> Any:
        self.callbacks[topic] = callback
        return SimpleNamespace(topic_name=topic)

    def create_service(self, kind: Any, name: str, callback: Any) -> str:
        self.services[name] = callback
        return name

    def create_timer(self, period: float, callback: Callable[[], None]) -> Any:
        self.timers.append(callback)
        return SimpleNamespace(timer_period_ns=round(period * 1e9), reset=lambda: None)

    def count_publishers(self, topic: str) -> int:
        return self.publishers

    def get_logger(self) -> Silent:
        return Silent()

    def get_clock(self) -> Any:
        now = SimpleNamespace(nanoseconds=self.now_ns, to_msg=lambda: stamp(self.now_ns))
        return SimpleNamespace(now=lambda: now)

    def _command(self, message: Any) -> None:
        self.commands.append(np.array(message.points[0].positions))


class Rig:
    """A pipeline on a lone node, and the check of every command against all limits."""

    def __init__(self, **changes: Any) -> None:
        self.node = LoneNode()
        values = {param.name: param.default for param in PARAMETERS}
        made = settings_from({**values, **SETTINGS, **changes})
        self.pipeline = ExecutorPipeline(self.node, made, held=False, emergency=lambda: False)
        self.pipeline.activate()
        self.checked = 0

    def send(self, topic: str, message: Any) -> None:
        self.node.callbacks[topic](message)

    def call_hold(self, data: bool) -> None:
        self.node.services["hold"](SetBool.Request(data=data), SetBool.Response())

    def tick(self) -> None:
        """A control step and, every fourth, a state; then the check."""
        self.node.now_ns += PERIOD
        before = len(self.node.commands)
        self.node.timers[0]()
        if len(self.node.commands) == before:
            self.node.commands.append(None)
        self.check()

    def check(self) -> None:
        """Limits of the last command; velocity and acceleration across steps without a break."""
        recent = self.node.commands[-3:]
        del self.node.commands[:-3]
        last = recent[-1]
        if last is None:
            return
        assert not self.pipeline._loop.emergency
        self.checked += 1
        assert (last >= LOWER).all() and (last <= UPPER).all(), last
        if len(recent) < 2 or recent[-2] is None:
            return
        velocity = (last - recent[-2]) * RATE
        assert (np.abs(velocity) <= VELOCITY + 1e-9).all(), velocity
        if len(recent) == 3 and recent[0] is not None:
            change = (velocity - (recent[-2] - recent[0]) * RATE) * RATE
            assert (np.abs(change) <= ACCELERATION + 1e-6).all(), change


NUMBERS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.3,
    1e-300,
    1e9,
    -1e9,
    3.4e38,
    -3.4e38,
    float("nan"),
    float("inf"),
    -float("inf"),
]
DOUBLES = [*NUMBERS, 1e300, -1e308, 5e-324]
WHOLE = [0, 1, 2, 3, 49, 50, 51, 2**31 - 1, 2**32 - 1]
LONG = [0, 1, 2, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
NAMES = ["pan", "lift", "grip", "", "claw", "pan ", "P" * 5000, "\u2603"]


class Adversary:
    """Makes messages: good ones, good ones with damage, and nonsense."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sequence = 0

    def time(self, now_ns: int) -> Time:
        choice = self.random.random()
        if choice < 0.6:
            return stamp(now_ns - self.random.randrange(0, 200 * MS))
        if choice < 0.8:
            return stamp(now_ns + self.random.randrange(-20_000 * MS, 20_000 * MS))
        return Time(
            sec=self.random.choice([0, -1, 1, -(2**31), 2**31 - 1, now_ns // 10**9]),
            nanosec=self.random.choice([0, 999_999_999, 10**9, 2**32 - 1]),
        )

    def chunk(self, now_ns: int, epoch: int) -> ActionChunk:
        self.sequence += 1
        rows = self.random.choice([1, 2, 5, 20, 50])
        scale = self.random.choice([0.1, 1.0, 10.0, 1e6, 1e9])
        values = [self.random.uniform(-scale, scale) for _ in range(rows * len(JOINTS))]
        message = ActionChunk(
            sequence=self.sequence, epoch=epoch, action_names=JOINTS, step_period=0.05,
            horizon=rows, window=rows, actions=values,
        )  # fmt: skip
        message.header.stamp = stamp(now_ns - self.random.randrange(0, 150 * MS))
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2, 5])):
            self.damage(message, now_ns)
        return message

    def damage(self, message: ActionChunk, now_ns: int) -> None:
        pick = self.random.choice
        field = pick(
            ["actions", "value", "names", "step", "horizon", "window", "epoch", "sequence", "stamp", "more"]
        )
        if field == "actions":
            message.actions = [pick(NUMBERS) for _ in range(pick([0, 1, 2, 3, 7, 150, 2000]))]
        elif field == "value" and len(message.actions):
            message.actions[self.random.randrange(len(message.actions))] = pick(NUMBERS)
        elif field == "names":
            message.action_names = pick(
                [[pick(NAMES) for _ in range(pick([0, 1, 3, 4]))], JOINTS[::-1], ["x"] * 3000]
            )
        elif field == "step":
            message.step_period = pick([*DOUBLES, 1e-9, 1e-3, 0.01, 0.2, 10.0])
        elif field in ("horizon", "window"):
            setattr(message, field, pick(WHOLE))
        elif field in ("epoch", "sequence"):
            setattr(message, field, pick([*LONG, self.sequence, self.sequence - 1]) if self.sequence else 0)
        elif field == "stamp":
            message.header.stamp = self.time(now_ns)
        else:
            message.frozen = pick(WHOLE)
            message.timing.total_ms = pick(DOUBLES)

    def joint_state(self, now_ns: int) -> JointState:
        pick = self.random.choice
        # Up to the tolerance outside the limits.
        position = [
            self.random.uniform(low - 0.09, high + 0.09) for low, high in zip(LOWER, UPPER, strict=True)
        ]
        message = JointState(name=JOINTS, position=position)
        message.header.stamp = stamp(now_ns)
        if self.random.random() < 0.4:
            count = pick([0, 1, 3, 3, 4, 2000])
            message.position = [pick([*DOUBLES, *position]) for _ in range(count)]
            message.name = pick([JOINTS, JOINTS[::-1], [pick(NAMES) for _ in range(count)]])
            message.header.stamp = pick([stamp(now_ns), self.time(now_ns)])
        return message

    def act(self, rig: Rig, present: list[int]) -> None:
        """One or more messages, and a control step."""
        chance = self.random.random()
        now_ns = rig.node.now_ns
        rig.send("joint_states", self.joint_state(now_ns))
        rig.send("action_chunk", self.chunk(now_ns, present[0]))
        if chance < 0.02:
            present[0] = self.random.choice([present[0] + 1, *LONG])
            rig.send("epoch", UInt64(data=present[0]))
        elif chance < 0.05:
            rig.call_hold(self.random.random() < 0.3)
        elif chance < 0.06:
            rig.node.publishers = 2
        elif chance < 0.10:
            rig.node.publishers = 1
            rig.call_hold(False)
        elif chance < 0.105:
            rig.pipeline.emergency_stop(True)
        elif chance < 0.13:
            rig.pipeline.emergency_stop(False)
        elif chance < 0.135:
            rig.node.now_ns += self.random.randrange(-5_000 * MS, 5_000 * MS)
            rig.pipeline.clock_jumped()
        elif chance < 0.14:
            present[0] = 1
            rig.send("epoch", UInt64(data=1))
            self.sequence = 0
        rig.tick()


@pytest.mark.parametrize("blending", ["replace", "temporal_ensemble", "real_time"])
def test_ten_thousand_damaged_messages_break_no_limit(blending: str) -> None:
    rig, adversary, present = Rig(blending=blending), Adversary(seed=20), [1]
    rig.send("epoch", UInt64(data=1))
    for i in range(3400):
        adversary.act(rig, present)
        if i % 50 == 0:
            rig.node.timers[1]()
            assert len(rig.pipeline.statuses()) == 3
    loop = rig.pipeline._loop
    # That the arm moved, and that most of what can be wrong was.
    assert rig.checked > 500 and loop.timeline.executed_steps > 200
    assert len(loop.rejections) >= 14 and loop.chunks_received == 3400
    assert all(loop.limited[name] for name in ("position", "velocity", "acceleration"))


def test_memory_is_flat() -> None:
    rig, adversary, present = Rig(), Adversary(seed=21), [1]
    rig.send("epoch", UInt64(data=1))

    def messages(count: int) -> int:
        for _ in range(count):
            adversary.act(rig, present)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    messages(800)  # buffers of recent delays fill
    tracemalloc.start()
    try:
        before = messages(250)
        after = messages(250)
    finally:
        tracemalloc.stop()
    assert after - before < 64 * 1024, f"{after - before} bytes more after 250 further chunks"


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["lagged", "time_aligned"]),
    st.sampled_from(["linear", "average"]),
)
def test_no_short_history_breaks_a_limit_either(seed: int, mode: str, blending: str) -> None:
    rig, adversary, present = Rig(mode=mode, blending=blending), Adversary(seed), [1]
    rig.send("epoch", UInt64(data=1))
    for _ in range(20):
        adversary.act(rig, present)


URDF_LIMITS = ["-1", "1", "nan", "inf", "-inf", "1e400", "x", "", "0", "2"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(URDF_LIMITS), min_size=9, max_size=9), st.integers(0, 2**32 - 1))
def test_no_robot_description_widens_the_limits(values: list[str], seed: int) -> None:
    limit = '<limit lower="{}" upper="{}" velocity="{}"/>'
    joints = "".join(
        f'<joint name="{name}" type="revolute">{limit.format(*values[3 * i : 3 * i + 3])}</joint>'
        for i, name in enumerate(JOINTS)
    )
    rig, adversary, present = Rig(robot_description="topic"), Adversary(seed), [1]
    rig.send("epoch", UInt64(data=1))
    for document in ("", "<robot", f"<robot>{joints}</robot>"):
        rig.send("robot_description", String(data=document))
        for _ in range(5):
            adversary.act(rig, present)
