"""Everything the policy node has while it is configured: topics, worker, episodes."""

from __future__ import annotations

import array
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String, UInt64
from std_srvs.srv import Trigger

from vla_simd_ros.control.chunk import NANOSECONDS
from vla_simd_ros.control.committed import CommittedError
from vla_simd_ros.control.query_pacer import QueryPacer
from vla_simd_ros.control.query_timing import QueryPacing
from vla_simd_ros.control.supply_watch import SupplyWatch
from vla_simd_ros.msg import ActionChunk, CommittedPrefix, ExecutorState, QueryTiming
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.diagnostics import Status
from vla_simd_ros.nodes.episodes import Episode, EpochCounter
from vla_simd_ros.nodes.injected_delay import InjectedDelay
from vla_simd_ros.nodes.latched import subscribe_latched
from vla_simd_ros.nodes.messages import committed_prefix, decoding_fields, stamp, supply_report
from vla_simd_ros.nodes.observations import Observations
from vla_simd_ros.nodes.policy_report import (
    Refusals,
    observation_status,
    policy_status,
    supply_forecast_status,
)
from vla_simd_ros.nodes.policy_runner import PolicyRunner, Prediction, Times
from vla_simd_ros.nodes.policy_settings import (
    JOINT_STATES,
    STATE_TOPICS,
    PolicySettings,
    instruction_problem,
)
from vla_simd_ros.nodes.processing_time import ProcessingTime
from vla_simd_ros.nodes.query_decoding import QueryDecoding
from vla_simd_ros.nodes.query_sampling import QuerySampling
from vla_simd_ros.nodes.query_worker import FrameSet, QueryWorker
from vla_simd_ros.nodes.vehicle_motion import Motion, VehicleMotion

THROTTLE_S = 2.0
STOP_TIMEOUT_S = 0.5


class Worker(Protocol):
    """Runs episodes and queries in threads of its own, as :class:`QueryWorker` does."""

    def begin(self, episode: Episode) -> None:
        """Start an episode: nothing of before counts any more."""

    def offer(self, frames: FrameSet) -> None:
        """Provide the newest observation."""

    def pause(self) -> None:
        """Do nothing and deliver nothing until the next episode."""

    def stop(self, timeout_s: float) -> bool:
        """End; false when a call is still running."""


class PolicyPipeline:
    """Subscriptions, publishers and the query thread around one loaded policy.

    Args:
        node: the node that has the topics.
        policy: the loaded policy; the pipeline closes it.
        settings: checked settings for it.
        sampling: steps and noise of its queries.
        decoding: of their action tokens.
        epochs: numbers the episodes.
        instruction: the instruction that has been set on the policy, if any.
    """

    def __init__(
        self,
        node: LifecycleNode,
        policy: Any,
        settings: PolicySettings,
        sampling: QuerySampling,
        decoding: QueryDecoding,
        epochs: EpochCounter,
        instruction: str | None,
    ) -> None:
        self._node = node
        self._spec = policy.spec
        self._name = policy.name
        self._settings = settings
        self._epochs = epochs
        self._active = False
        self._sequence = 0
        self._since_ns = self._now_ns()
        self._instruction = instruction
        self._sampling = sampling
        self._decoding = decoding
        self._supply = SupplyWatch(1.0 / settings.step_period, settings.window, sampling.takes_fewer_steps)
        self._pacer = QueryPacer(settings.pacing.kind, settings.pacing.threshold)
        self._observations = Observations(settings, policy.spec, self._offer, self._warn)
        self._refusals = Refusals()
        self._runner = PolicyRunner(
            policy,
            settings,
            self._observations,
            sampling,
            decoding,
            self._pacer,
            self._now_ns,
            self._publish,
            self._report_failure,
            self._warn,
            InjectedDelay(settings.inject_delay) if settings.inject_delay else None,
        )
        self._create_interfaces()
        # Last: from here on the worker closes the policy.
        self._worker: Worker = self._start_worker()

    def _start_worker(self) -> Worker:
        """What queries the policy."""
        return QueryWorker(self._runner)

    def _create_interfaces(self) -> None:
        node = self._node
        self._chunks = node.create_publisher(ActionChunk, "action_chunk", qos.CHUNK)
        self._timing = node.create_publisher(QueryTiming, "query_timing", qos.STATE)
        self._processing = ProcessingTime(node)
        self._epoch = node.create_publisher(UInt64, "epoch", qos.LATCHED)
        kind = CompressedImage if self._settings.compressed else Image
        suffix = "/compressed" if self._settings.compressed else ""
        self._subscriptions = [
            node.create_subscription(
                kind, source.topic + suffix, partial(self._on_frame, source.name), qos.CAMERA
            )
            for source in self._settings.cameras
        ]
        self._subscriptions += [
            self._subscribe_state(),
            *subscribe_latched(node, String, "instruction", self._on_instruction),
        ]
        if self._settings.pacing.kind is not QueryPacing.CONTINUOUS:
            self._subscriptions.append(
                node.create_subscription(ExecutorState, "executor_state", self._on_executor_state, qos.STATE)
            )
        if self._sampling.continues:
            self._subscriptions.append(
                node.create_subscription(CommittedPrefix, "committed_prefix", self._on_committed, qos.CHUNK)
            )
        self._reset_service = node.create_service(Trigger, "~/reset", self._on_reset)

    def _subscribe_state(self) -> Any:
        topic = self._settings.state_topic
        if topic == STATE_TOPICS[JOINT_STATES]:
            return self._node.create_subscription(JointState, topic, self._on_joint_state, qos.JOINTS)
        motion = VehicleMotion()

        def on_odometry(message: Odometry) -> None:
            self._on_joint_state(motion.read(message))

        return self._node.create_subscription(Odometry, topic, on_odometry, qos.JOINTS)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Let later queries take other solver steps, or be decoded otherwise. Raises ParameterError, and
        changes nothing, where they cannot."""
        decoding = self._decoding.changed(changes)
        if "num_steps" in changes:
            self._sampling.set_num_steps(changes["num_steps"])
        self._decoding.take(decoding)
        self._supply.restart()

    def activate(self) -> None:
        """Start querying, in a new epoch."""
        self._active = True
        self._since_ns = self._now_ns()
        self._begin_episode()

    def deactivate(self) -> None:
        """Start no further query; the result of one in progress is dropped."""
        self._active = False
        self._worker.pause()

    def clock_jumped(self) -> None:
        """Forget observations of another time; a new epoch makes the chunk executor do the same."""
        self._observations.clock_jumped()
        self._pacer.clock_jumped()
        self._runner.committed = None
        self._since_ns = self._now_ns()
        if self._active:
            self._begin_episode()

    def close(self) -> bool:
        """Take the topics down and free the policy; false when a running query has yet to free it."""
        self._active = False
        idle = self._worker.stop(STOP_TIMEOUT_S)
        for publisher in (self._chunks, self._timing, self._epoch):
            self._node.destroy_publisher(publisher)
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._node.destroy_service(self._reset_service)
        self._processing.destroy()
        return idle

    def statuses(self) -> list[Status]:
        """Diagnostics."""
        uses_joints = self._spec.state_dim > 0
        return [
            observation_status(
                self._observations,
                self._settings,
                self._refusals,
                uses_joints,
                self._now_ns(),
                self._since_ns,
            ),
            policy_status(self._runner, self._instruction, self._missing_instruction()),
            supply_forecast_status(self._supply.verdict),
        ]

    # --- in ---

    def _on_frame(self, camera: str, message: Any) -> None:
        self._observations.frame(camera, message, self._now_ns())

    def _on_joint_state(self, message: JointState | Motion) -> None:
        if self._spec.state_dim:
            self._observations.joint_state(message, self._now_ns())

    def _on_instruction(self, message: String) -> None:
        if not self._spec.uses_instruction:
            self._warn(f"instruction {message.data!r:.80} ignored: the policy '{self._spec.type}' takes none")
        elif problem := instruction_problem(message.data):
            kept = f"'{self._instruction}' stays" if self._instruction else "the policy waits for another one"
            self._report_failure(f"instruction refused: {problem}; {kept}")
        elif message.data != self._instruction:
            self._instruction = message.data
            if self._active:
                self._begin_episode()

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = self._active
        response.message = "a new epoch has started" if self._active else "the node is not active"
        if self._active:
            self._observations.forget_past()
            self._begin_episode()
        return response

    def _on_executor_state(self, message: ExecutorState) -> None:
        try:
            report = supply_report(message)
        except ValueError as error:
            self._warn(f"executor_state refused: {error}")
            return
        self._pacer.executor(report)

    def _on_committed(self, message: CommittedPrefix) -> None:
        try:
            self._runner.committed = committed_prefix(message, self._settings.action_names)
        except CommittedError as error:
            self._runner.committed = None
            self._warn(f"committed_prefix refused: {error}")

    def _missing_instruction(self) -> bool:
        return bool(self._spec.uses_instruction) and self._instruction is None

    # --- episodes and results ---

    def _begin_episode(self) -> None:
        epoch = self._epochs.next(self._now_ns())
        self._epoch.publish(UInt64(data=epoch))
        self._pacer.start_epoch()
        if self._missing_instruction():
            self._worker.pause()
            self._warn("no instruction yet: publish one on the topic instruction")
            return
        self._worker.begin(Episode(epoch, self._instruction))
        self._node.get_logger().info(f"epoch {epoch} starts, instruction: {self._instruction!r}")

    def _offer(self, frames: FrameSet) -> None:
        self._pacer.observed(frames.stamp_ns)
        self._worker.offer(frames)

    def _publish(self, prediction: Prediction, episode: Episode, episode_ms: float) -> int:
        """Called by the query thread; the number of the chunk."""
        self._sequence += 1
        chunk = ActionChunk(
            sequence=self._sequence,
            epoch=episode.epoch,
            policy=self._name,
            instruction=episode.instruction or "",
            action_names=list(self._settings.action_names),
            step_period=self._settings.step_period,
            horizon=len(prediction.rows),
            window=min(self._settings.window, len(prediction.rows)),
            frozen=prediction.frozen,
            unconverged=not prediction.converged,
            actions=array.array("f", prediction.rows.astype(np.float32).tobytes()),
        )
        chunk.header.stamp = stamp(prediction.stamp_ns)
        chunk.timing = self._timing_message(prediction, chunk, episode_ms)
        duration_ns = round(chunk.window * self._settings.step_period * NANOSECONDS)
        self._pacer.published(chunk.sequence, prediction.stamp_ns, self._now_ns(), duration_ns)
        self._chunks.publish(chunk)
        self._timing.publish(chunk.timing)
        self._processing.publish(chunk.timing.total_ms + chunk.timing.publish_ms)
        self._judge_supply(chunk.timing)
        return self._sequence

    def _judge_supply(self, timing: QueryTiming) -> None:
        """Say whether the policy keeps up, as soon as that is known."""
        delay_ms, age_ms = timing.observation_to_publish_ms, timing.observation_age_ms
        verdict = self._supply.chunk(max(0.0, delay_ms - age_ms) * 1e-3, max(0.0, delay_ms) * 1e-3)
        if verdict is None:
            return
        # Two calls: rclpy lets no call of its logger change the severity from one time to the next.
        if all(verdict.holds):
            self._node.get_logger().info(f"{self._name}: {verdict}")
        else:
            self._node.get_logger().warning(f"{self._name}: {verdict}")

    def _timing_message(self, prediction: Prediction, chunk: ActionChunk, episode_ms: float) -> QueryTiming:
        times: Times = prediction.times
        timing = QueryTiming(
            header=chunk.header,
            sequence=chunk.sequence,
            epoch=chunk.epoch,
            observation_age_ms=times.observation_age,
            transport_ms=times.transport,
            sync_ms=times.sync,
            wait_ms=times.wait,
            preprocess_ms=times.preprocess,
            episode_ms=episode_ms,
            query_ms=times.query,
            handover_ms=times.handover,
            step_ms=times.step,
            postprocess_ms=times.postprocess,
            total_ms=times.total,
            frame_stamps=[stamp(time_ns) for time_ns in prediction.frame_stamps_ns],
            joint_stamp=stamp(prediction.joint_stamp_ns),
            num_steps=prediction.num_steps,
            noise_seed=prediction.noise_seed,
            **decoding_fields(prediction.decoding),
        )
        now_ns = self._now_ns()
        timing.publish_ms = (now_ns - prediction.ready_ns) * 1e-6
        timing.observation_to_publish_ms = (now_ns - prediction.stamp_ns) * 1e-6
        return timing

    def _now_ns(self) -> int:
        return int(self._node.get_clock().now().nanoseconds)

    def _warn(self, text: str) -> None:
        self._node.get_logger().warning(text, throttle_duration_sec=THROTTLE_S)

    def _report_failure(self, text: str) -> None:
        self._node.get_logger().error(text, throttle_duration_sec=THROTTLE_S)
