"""Everything the chunk executor has while it is configured: topics, timers and the control loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import JointState
from std_msgs.msg import String, UInt64
from std_srvs.srv import SetBool

from vla_simd_ros import thread_scheduling
from vla_simd_ros.control.chunk import ChunkRejected
from vla_simd_ros.control.control_loop import ActionKind, Activity, ControlLoop, Tick
from vla_simd_ros.control.joint_buffer import JointStateError, select_joints
from vla_simd_ros.control.stamps import StampValidator
from vla_simd_ros.control.timeline import StepKind
from vla_simd_ros.msg import ActionChunk, CommittedPrefix, ExecutorState
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.diagnostics import Status
from vla_simd_ros.nodes.executor_report import (
    Executed,
    Faults,
    execution_status,
    joint_status,
    state_message,
    supply_status,
)
from vla_simd_ros.nodes.executor_settings import ExecutorSettings
from vla_simd_ros.nodes.latched import subscribe_latched
from vla_simd_ros.nodes.latency_report import LatencyReport
from vla_simd_ros.nodes.messages import committed_message, nanoseconds, raw_chunk
from vla_simd_ros.nodes.outputs import OUTPUTS
from vla_simd_ros.nodes.parameters import ParameterError
from vla_simd_ros.nodes.step_record import StepRecord

THROTTLE_S = 2.0
BRAKING_S = 1.0


class ExecutorPipeline:
    """Subscriptions, publishers and timers around one control loop.

    Args:
        node: the node that has the topics.
        settings: checked settings.
        held: whether the hold service keeps the arm held since before.
        emergency: says whether an emergency stop is in force.
    """

    def __init__(
        self, node: LifecycleNode, settings: ExecutorSettings, held: bool, emergency: Callable[[], bool]
    ) -> None:
        self._node = node
        self._settings = settings
        self._loop = ControlLoop(settings.loop)
        self._loop.hold(held)
        self._emergency = emergency
        self._loop.emergency_stop(emergency())
        self._description = ""
        if settings.description_from_topic:
            self._loop.unready("no robot description has been received on the topic robot_description")
        self._active = False
        self._tick: Tick | None = None
        self._executed = Executed()
        self._faults = Faults()
        self._reported_rejections = 0
        self._reported_joint_faults = 0
        self._joint_stamps = StampValidator("joint_states", settings.stamp_tolerance_ns)
        self._create_interfaces()

    def _create_interfaces(self) -> None:
        node, settings = self._node, self._settings
        output = OUTPUTS[settings.output]
        self._output = output(node, settings.loop.joints, settings.loop.period_ns, settings.frame_id)
        self._states = node.create_publisher(ExecutorState, "executor_state", qos.STATE)
        self._latency = LatencyReport(node)
        self._record = StepRecord(node)
        self._committed = node.create_publisher(CommittedPrefix, "committed_prefix", qos.CHUNK)
        self._chunks = node.create_subscription(ActionChunk, "action_chunk", self._on_chunk, qos.CHUNK)
        self._subscriptions = [
            self._chunks,
            *subscribe_latched(node, UInt64, "epoch", self._on_epoch),
            node.create_subscription(JointState, "joint_states", self._on_joint_state, qos.JOINTS),
        ]
        if settings.description_from_topic:
            self._subscriptions += subscribe_latched(
                node, String, "robot_description", self._on_robot_description
            )
        self._hold_service = node.create_service(SetBool, "hold", self._on_hold)
        self._control = node.create_timer(settings.control_period, self._on_control_call)
        self._timers = [self._control, node.create_timer(settings.state_period, self._publish_state)]

    @property
    def held(self) -> bool:
        """Whether the hold service keeps the arm held."""
        return self._loop.hold_requested

    def activate(self) -> None:
        """Start commanding: from the measured positions, with the next chunk."""
        self._schedule(self._settings.realtime_priority)
        self._loop.pause()
        self._record.activated()
        self._active = True

    def deactivate(self) -> None:
        """Bring the arm to rest within its limits, then command nothing."""
        if self._active:
            self._brake()
            self._schedule(0)
        self._active = False
        self._loop.pause()
        self._publish_state()

    def _schedule(self, priority: int) -> None:
        if not self._settings.realtime_priority:
            return
        try:
            thread_scheduling.schedule(priority)
        except OSError as error:
            self._warn(f"realtime_priority: {error}; control steps may come late on a busy machine")

    def emergency_stop(self, latched: bool) -> None:
        """Command nothing from now on, or release."""
        self._loop.emergency_stop(latched)
        self._publish_state()

    def clock_jumped(self) -> None:
        """Forget everything that has a time."""
        self._loop.clock_jumped()
        self._latency.forget()
        self._joint_stamps.reset()

    def close(self) -> bool:
        """Bring the arm to rest and take the topics down."""
        if self._active:
            self.deactivate()
        for timer in self._timers:
            self._node.destroy_timer(timer)
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._node.destroy_service(self._hold_service)
        self._node.destroy_publisher(self._states)
        self._latency.destroy()
        self._record.destroy()
        self._node.destroy_publisher(self._committed)
        self._output.destroy()
        return True

    def statuses(self) -> list[Status]:
        """Diagnostics since the last call."""
        rejected = self._loop.rejections.total()
        statuses = [
            execution_status(self._loop, self._tick, self._active, rejected - self._reported_rejections),
            supply_status(self._loop),
            joint_status(self._faults, self._faults.joint_states - self._reported_joint_faults),
        ]
        self._reported_rejections = rejected
        self._reported_joint_faults = self._faults.joint_states
        return statuses

    # --- in ---

    def _on_epoch(self, message: UInt64) -> None:
        present = self._loop.timeline.epoch
        if present is not None and message.data < present:
            self._warn(f"epoch {message.data} is announced after {present}: the policy node has restarted")
        self._loop.start_epoch(message.data)

    def _on_chunk(self, message: Any) -> None:
        if not self._active:
            return
        self._count_publishers()
        now_ns = self._now_ns()
        try:
            self._loop.chunk(raw_chunk(message), now_ns)
            self._latency.arrived(message, now_ns)
            self._record.accepted(message.sequence, now_ns)
        except ChunkRejected as rejected:
            self._faults.last_chunk = str(rejected)
            self._error(f"chunk rejected ({rejected.reason.value}): {rejected}")
            self._publish_state()

    def _on_joint_state(self, message: JointState) -> None:
        if self._settings.loop.kind is not ActionKind.POSITION:
            return
        stamp_ns = nanoseconds(message.header.stamp)
        if self._joint_stamps.check(stamp_ns, self._now_ns()) is not None:
            self._joint_fault(self._joint_stamps.last_message)
            return
        try:
            positions = select_joints(message.name, message.position, self._settings.loop.joints)
        except JointStateError as error:
            self._joint_fault(str(error))
            return
        self._loop.joint_state(positions, stamp_ns)

    def _on_robot_description(self, message: String) -> None:
        try:
            limits = self._settings.limits.described(message.data)
        except (ValueError, ParameterError) as error:
            self._error(f"robot description refused: {error}")
            if not self._description:
                self._loop.unready(f"the robot description cannot be used: {error}")
            return
        if not self._description:
            self._description = message.data
            self._loop.limit(limits)
            self._loop.unready("")
            self._node.get_logger().info("limits of the robot description apply")
        elif message.data != self._description:
            self._warn("the robot description has changed: clean up and configure to put its limits in force")

    def _on_hold(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        self._loop.hold(request.data)
        response.success = True
        response.message = "holding until released" if request.data else "released: the next chunk restarts"
        self._node.get_logger().info(response.message)
        self._publish_state()
        return response

    # --- control steps ---

    def _on_control_call(self) -> None:
        self._on_control_step()
        # By itself the timer would go on from wherever a stall left it, every later step as late as that.
        self._control.timer_period_ns = max(1, self._loop.grid.until_next(self._now_ns()))
        self._control.reset()

    def _on_control_step(self) -> None:
        if not self._active:
            return
        now_ns = self._now_ns()
        self._count_publishers()
        tick = self._loop.tick(now_ns)
        if tick is None:
            return
        self._send(tick, now_ns)
        self._record.stepped(self._loop, tick, now_ns)
        if tick.step is not None and tick.step.kind is StepKind.ROW:
            age_ms = (now_ns - tick.step.stamp_ns) * 1e-6
            self._executed = Executed(tick.step.row, tick.step.sequence, age_ms)
            self._latency.executed(tick.step, now_ns)
            self._publish_committed(now_ns)
        before, self._tick = self._tick, tick
        if before is None or before.activity is not tick.activity:
            self._announce(tick)

    def _send(self, tick: Tick, now_ns: int) -> None:
        if tick.command is None or self._settings.dry_run:
            return
        planned = self._output.needs_ahead and tick.activity is Activity.EXECUTING
        self._output.send(tick.command, now_ns, self._loop.ahead() if planned else None)

    def _publish_committed(self, now_ns: int) -> None:
        if not self._committed.get_subscription_count():
            return
        prefix = self._loop.committed(now_ns)
        if prefix is not None:
            self._committed.publish(committed_message(prefix, self._settings.loop.joints))

    def _announce(self, tick: Tick) -> None:
        text = tick.activity.value + (f": {tick.reason}" if tick.reason else "")
        self._node.get_logger().info(text)
        self._publish_state()

    def _count_publishers(self) -> None:
        # The resolved name: counting by the name in the source would not know of a remapping.
        self._loop.publishers(self._node.count_publishers(self._chunks.topic_name))

    def _brake(self) -> None:
        """Send the commands of a stop, one per control period; at most for a second."""
        deadline = time.monotonic() + BRAKING_S
        for command in self._loop.braking():
            if not self._settings.dry_run:
                self._output.send(command, self._now_ns(), None)
            time.sleep(self._settings.control_period)
            if self._emergency() or time.monotonic() > deadline:
                break

    # --- out ---

    def _publish_state(self) -> None:
        message = state_message(self._loop, self._settings, self._tick, self._executed, self._active)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._states.publish(message)

    def _joint_fault(self, text: str) -> None:
        self._faults.joint_states += 1
        self._faults.last_joint_state = text
        self._warn(text)

    def _now_ns(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)

    def _warn(self, text: str) -> None:
        self._node.get_logger().warning(text, throttle_duration_sec=THROTTLE_S)

    def _error(self, text: str) -> None:
        self._node.get_logger().error(text, throttle_duration_sec=THROTTLE_S)
