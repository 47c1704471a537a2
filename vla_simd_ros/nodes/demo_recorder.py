"""The demo's observer: records the topics and gives instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from vla_simd_ros.control.latency_budget import STAGES as BUDGET_STAGES
from vla_simd_ros.control.latency_budget import LatencyBudget as ChunkBudget
from vla_simd_ros.msg import ActionChunk, ExecutorState, HybridState, LatencyBudget, QueryTiming
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.demo_recording import (
    Budget,
    Chunk,
    ExecutorReport,
    Joints,
    Recording,
    timing_of,
)
from vla_simd_ros.nodes.messages import nanoseconds
from vla_simd_ros.sim.tasks import INSTRUCTIONS

_STATES = {
    getattr(ExecutorState, name): name
    for name in ("INACTIVE", "WAITING", "EXECUTING", "STARVED", "HOLDING", "STOPPED", "EMERGENCY_STOPPED")
}
_NUMBERS = tuple(
    name
    for name, kind in ExecutorState.get_fields_and_field_types().items()
    if kind in ("double", "uint64", "uint32", "int32")
)


class DemoRecorder(Node):
    """Fills a `Recording` from the topics; times are message stamps, or receipt where a message has none."""

    def __init__(self, recording: Recording, cameras: Sequence[str]) -> None:
        super().__init__("demo_recorder")
        self.recording = recording
        self.frames: dict[str, npt.NDArray[np.uint8]] = {}
        """The first picture of each camera."""
        self.hybrid: HybridState | None = None
        """The last state of a hybrid scheduler, if there is one."""
        self._cameras: dict[str, Any] = {}
        self._reached: set[str] = set()
        history = QoSProfile(depth=100)  # more than the receivers keep: the recording should have no gaps
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._instruction = self.create_publisher(String, "instruction", latched)
        for kind, topic, callback in (
            (JointState, "joint_states", self._on_joints),
            (JointTrajectory, "joint_trajectory", self._on_command),
            (ActionChunk, "action_chunk", self._on_chunk),
            (QueryTiming, "query_timing", self._on_timing),
            (LatencyBudget, "latency_budget", self._on_budget),
            (ExecutorState, "executor_state", self._on_executor),
            (HybridState, "hybrid_state", self._on_hybrid),
            (DiagnosticArray, "/diagnostics", self._on_diagnostics),
        ):
            self.create_subscription(kind, topic, callback, history)
        self.create_subscription(DiagnosticArray, "robot_sim_node/achieved", self._on_achieved, qos.LATCHED)
        for name in cameras:
            self._cameras[name] = self.create_subscription(
                Image, f"camera/{name}/image_raw", self._on_image(name), qos.CAMERA
            )

    @property
    def now(self) -> int:
        """Nanoseconds of the ROS clock."""
        return int(self.get_clock().now().nanoseconds)

    def _on_hybrid(self, message: HybridState) -> None:
        self.hybrid = message

    def _on_achieved(self, message: DiagnosticArray) -> None:
        values = [value for status in message.status for value in status.values]
        reached = {value.key for value in values if value.key in INSTRUCTIONS and value.value == "true"}
        time = nanoseconds(message.header.stamp)
        self.recording.goals.extend((time, text) for text in sorted(reached - self._reached))
        self._reached = reached

    def instruct(self, text: str) -> None:
        """Publishes an instruction."""
        self._instruction.publish(String(data=text))
        self.recording.instructions.append((self.now, text))

    def _on_joints(self, message: JointState) -> None:
        self._add_joints(
            self.recording.joint_states, nanoseconds(message.header.stamp), message.name, message.position
        )

    def _on_command(self, message: JointTrajectory) -> None:
        if message.points:
            time = nanoseconds(message.header.stamp) or self.now
            self._add_joints(self.recording.commands, time, message.joint_names, message.points[-1].positions)

    def _add_joints(
        self, samples: list[Joints], time: int, names: Sequence[str], positions: Sequence[float]
    ) -> None:
        by_name = dict(zip(names, positions, strict=False))
        nowhere = float("nan")
        samples.append(Joints(time, [by_name.get(name, nowhere) for name in self.recording.joint_names]))

    def _on_chunk(self, message: ActionChunk) -> None:
        self.recording.chunks.append(
            Chunk(
                stamp=nanoseconds(message.header.stamp),
                arrival=self.now,
                sequence=message.sequence,
                epoch=message.epoch,
                instruction=message.instruction,
                step_period=message.step_period,
                horizon=message.horizon,
                window=message.window,
            )
        )

    def _on_timing(self, message: QueryTiming) -> None:
        self.recording.timings.append(timing_of(message, nanoseconds(message.header.stamp)))

    def _on_budget(self, message: LatencyBudget) -> None:
        stages = {name: float(getattr(message, name)) for name in BUDGET_STAGES}
        budget = ChunkBudget(stages, message.total_ms)
        self.recording.budgets.append(Budget(nanoseconds(message.header.stamp), message.sequence, budget))

    def _on_executor(self, message: ExecutorState) -> None:
        self.recording.executor.append(
            ExecutorReport(
                time=nanoseconds(message.header.stamp),
                mode=message.mode,
                state=_STATES[message.state],
                values={name: float(getattr(message, name)) for name in _NUMBERS},
                rejections=dict(
                    zip(message.rejection_reasons, map(int, message.rejection_counts), strict=False)
                ),
            )
        )

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {pair.key: pair.value for pair in status.values}
            self.recording.diagnostics[status.name] = {**values, "message": status.message}

    def _on_image(self, camera: str) -> Callable[[Image], None]:
        def keep(message: Image) -> None:
            if camera not in self.frames:
                picture = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, -1)
                self.frames[camera] = picture.copy()

        return keep

    def ignore_cameras(self) -> None:
        """No more pictures are wanted; receiving them would cost as much as the policy's own receipt."""
        for subscription in self._cameras.values():
            self.destroy_subscription(subscription)
        self._cameras.clear()
