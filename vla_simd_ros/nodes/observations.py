"""Sensor messages to observations: each one checked, frames joined, the joint state taken at capture time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.control.joint_buffer import (
    JointBuffer,
    JointStateError,
    JointStateUnavailable,
    select_joints,
)
from vla_simd_ros.control.stamps import StampValidator
from vla_simd_ros.inference import Observation
from vla_simd_ros.nodes.camera_health import CameraHealth
from vla_simd_ros.nodes.images import ImageError, check_image, rgb
from vla_simd_ros.nodes.messages import nanoseconds
from vla_simd_ros.nodes.policy_settings import PolicySettings
from vla_simd_ros.nodes.query_worker import FrameSet
from vla_simd_ros.nodes.synchronizer import QUEUE_SIZE, FrameSynchronizer
from vla_simd_ros.policies.base import PolicySpec

JOINT_HISTORY_NS = 5_000_000_000


class ObservationUnavailable(Exception):
    """A set of frames that no observation can be made of; the text says why."""


@dataclass(frozen=True)
class Observed:
    """An observation, and the stamp of the newest joint state known when it was made (0: none)."""

    observation: Observation
    joint_stamp_ns: int


class Observations:
    """Receives frames and joint states, and makes observations of them.

    Everything is called by the node's thread but :meth:`observe`, which the query thread calls.

    Args:
        settings: the node's settings for the policy.
        spec: what the policy expects.
        ready: called with every complete set of frames.
        report: called with a text for each message that cannot be used.
    """

    def __init__(
        self,
        settings: PolicySettings,
        spec: PolicySpec,
        ready: Callable[[FrameSet], None],
        report: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._ready = ready
        self._report = report
        self.health = {camera.name: CameraHealth() for camera in settings.cameras}
        self._stamps = {
            name: StampValidator(f"camera '{name}'", settings.stamp_tolerance_ns) for name in self.health
        }
        self._joint_stamps = StampValidator("joint_states", settings.stamp_tolerance_ns)
        self._joints = JointBuffer(
            JOINT_HISTORY_NS, settings.joint_max_gap_ns, settings.joint_max_extrapolation_ns
        )
        self._lock = threading.Lock()
        self._synchronizer = FrameSynchronizer(list(self.health), settings.sync_slop, self._joined)
        # When the frames that wait for others were received: (stamp, receipt) by camera.
        self._receipts: dict[str, deque[tuple[int, int]]] = {
            name: deque(maxlen=QUEUE_SIZE) for name in self.health
        }
        self._now_ns = 0
        self._last_set_ns = 0
        self.joints_ns: int | None = None
        self.joint_fault = ""
        self.joint_faults = 0
        self.sets = 0

    def frame(self, camera: str, message: Any, now_ns: int) -> None:
        """Take a camera message received at ``now_ns``."""
        health, stamp_ns = self.health[camera], nanoseconds(message.header.stamp)
        if self._stamps[camera].check(stamp_ns, now_ns) is not None:
            health.fault(self._stamps[camera].last_message)
            self._report(health.last_fault)
            return
        try:
            if not self._settings.compressed:
                check_image(message, camera, self._spec.cameras[camera], self._settings.pictures)
        except ImageError as error:
            health.fault(str(error))
            self._report(health.last_fault)
            return
        health.usable(stamp_ns, now_ns)
        self._now_ns = now_ns
        self._receipts[camera].append((stamp_ns, now_ns))
        self._synchronizer.add(camera, message)

    def joint_state(self, message: Any, now_ns: int) -> None:
        """Take a joint state received at ``now_ns``."""
        stamp_ns = nanoseconds(message.header.stamp)
        if self._joint_stamps.check(stamp_ns, now_ns) is not None:
            self._joint_fault(self._joint_stamps.last_message)
            return
        try:
            positions = select_joints(message.name, message.position, self._settings.joints)
        except JointStateError as error:
            self._joint_fault(str(error))
            return
        with self._lock:
            self._joints.add(stamp_ns, positions)
        self.joints_ns = now_ns

    def clock_jumped(self) -> None:
        """Forget everything that has a time."""
        with self._lock:
            self._joints.clear()
        for name, health in self.health.items():
            health.reset()
            self._stamps[name].reset()
            self._receipts[name].clear()
        self._joint_stamps.reset()
        self._synchronizer.reset()
        self._last_set_ns = 0
        self.joints_ns = None

    def observe(self, frames: FrameSet, now_ns: int) -> Observed:
        """Make the observation of a set of frames.

        Raises:
            ObservationUnavailable: too old, no joint state for its time, or a picture that fails to decode.
        """
        age_ns = now_ns - frames.stamp_ns
        if age_ns > self._settings.max_age_ns:
            raise ObservationUnavailable(
                f"observations are late: the frames were captured {age_ns * 1e-9:.2f} s ago, "
                f"expected at most {self._settings.max_age_ns * 1e-9:.2f} s"
            )
        try:
            state, joint_stamp_ns = self._state_at(frames.stamp_ns)
            images = {
                name: rgb(message, name, self._spec.cameras[name], self._settings.pictures)
                for name, message in frames.messages.items()
            }
        except (JointStateUnavailable, ImageError) as error:
            raise ObservationUnavailable(str(error)) from error
        return Observed(Observation(images=images, state=state), joint_stamp_ns)

    def _state_at(self, time_ns: int) -> tuple[np.ndarray, int]:
        if not self._spec.state_dim:
            return np.zeros(0, dtype=np.float32), 0
        with self._lock:
            positions, newest = self._joints.at(time_ns), self._joints.newest()
        assert newest is not None  # at() has found one
        return self._settings.state_units.to_policy(positions).astype(np.float32), newest[0]

    def _joined(self, messages: dict[str, Any]) -> None:
        stamps = {name: nanoseconds(message.header.stamp) for name, message in messages.items()}
        oldest = min(stamps, key=lambda name: stamps[name])
        stamp_ns = stamps[oldest]
        if stamp_ns <= self._last_set_ns:
            return
        self._last_set_ns = stamp_ns
        self.sets += 1
        received_ns = dict(self._receipts[oldest])[stamp_ns]
        self._ready(FrameSet(stamp_ns, received_ns, self._now_ns, messages))

    def _joint_fault(self, message: str) -> None:
        self.joint_faults += 1
        self.joint_fault = message
        self._report(message)
