"""Sensor messages to observations: each one checked, frames joined, the joint state taken at capture time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.control.chunk import NANOSECONDS
from vla_simd_ros.control.joint_buffer import (
    JointBuffer,
    JointStateError,
    JointStateUnavailable,
    select_joints,
)
from vla_simd_ros.control.observation_history import SampleHistory, padded, step_times
from vla_simd_ros.control.stamps import StampValidator
from vla_simd_ros.inference import Observation
from vla_simd_ros.nodes.camera_health import CameraHealth
from vla_simd_ros.nodes.images import ImageError, check_image, rgb
from vla_simd_ros.nodes.messages import nanoseconds
from vla_simd_ros.nodes.policy_settings import PolicySettings
from vla_simd_ros.nodes.query_worker import Frame, FrameSet
from vla_simd_ros.nodes.synchronizer import QUEUE_SIZE, FrameSynchronizer
from vla_simd_ros.policies.base import PolicySpec

JOINT_HISTORY_NS = 5_000_000_000


class ObservationUnavailable(Exception):
    """A set of frames that no observation can be made of; the text says why."""


@dataclass(frozen=True)
class Observed:
    """An observation, the stamps of its frames (see QueryTiming.msg), and that of the newest joint state
    known when it was made (0: none)."""

    observation: Observation
    frame_stamps_ns: tuple[int, ...]
    joint_stamp_ns: int


@dataclass(frozen=True)
class _Step:
    """What was seen at one observation step."""

    images: Mapping[str, np.ndarray]
    state: np.ndarray
    frame_stamps_ns: tuple[int, ...]


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
        self._joint_stamps = StampValidator(settings.state_topic, settings.stamp_tolerance_ns)
        self._period_ns = round(settings.step_period * NANOSECONDS)
        past_ns = (spec.observation_steps - 1) * self._period_ns
        self._joints = JointBuffer(
            JOINT_HISTORY_NS + past_ns, settings.joint_max_gap_ns, settings.joint_max_extrapolation_ns
        )
        # A set of frames is as old as the oldest of those that wait to be joined.
        self._past: dict[str, SampleHistory[Frame]] = {
            name: SampleHistory(past_ns + settings.history_tolerance_ns, QUEUE_SIZE) for name in self.health
        }
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
            encoding = None
            if not self._settings.compressed:
                encoding = check_image(message, camera, self._spec.cameras[camera], self._settings.pictures)
        except ImageError as error:
            health.fault(str(error))
            self._report(health.last_fault)
            return
        health.usable(stamp_ns, now_ns)
        self._now_ns = now_ns
        self._receipts[camera].append((stamp_ns, now_ns))
        frame = Frame(message, encoding)
        if self._spec.observation_steps > 1:
            self._past[camera].add(stamp_ns, frame)
        self._synchronizer.add(camera, frame)

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
        self.forget_past()
        self._joint_stamps.reset()
        self._synchronizer.reset()
        self._last_set_ns = 0
        self.joints_ns = None

    def forget_past(self) -> None:
        """Use no frame of before for the observation steps of later ones: something new begins."""
        for past in self._past.values():
            past.clear()

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
        times = step_times(frames.stamp_ns, self._spec.observation_steps, self._period_ns)
        try:
            past_states, state, joint_stamp_ns = self._states_at(times)
            present = self._step(frames.frames, state)
        except (JointStateUnavailable, ImageError) as error:
            raise ObservationUnavailable(str(error)) from error
        if self._spec.observation_steps == 1:
            observation = Observation(images=present.images, state=present.state)
            return Observed(observation, present.frame_stamps_ns, joint_stamp_ns)
        before = [self._past_step(*past) for past in zip(frames.past, past_states, strict=True)]
        return _stacked(*padded(before, present), joint_stamp_ns)

    def _past_step(self, frames: Mapping[str, Frame] | None, state: np.ndarray | None) -> _Step | None:
        if frames is None or state is None:
            return None
        try:
            return self._step(frames, state)
        except ImageError:
            return None

    def _step(self, frames: Mapping[str, Frame], state: np.ndarray) -> _Step:
        images = {
            name: rgb(frame.message, name, self._spec.cameras[name], self._settings.pictures, frame.encoding)
            for name, frame in frames.items()
        }
        return _Step(images, state, tuple(nanoseconds(frame.header.stamp) for frame in frames.values()))

    def _states_at(self, times_ns: Sequence[int]) -> tuple[list[np.ndarray | None], np.ndarray, int]:
        """The states at the times but the last, None where there is none, the one at the last, and the stamp
        of the newest joint state: all as known at one moment. Raises JointStateUnavailable for the last."""
        *past, present = times_ns
        if not self._spec.state_dim:
            nothing = np.zeros(0, dtype=np.float32)
            return [nothing for _ in past], nothing, 0
        with self._lock:
            before = [self._joints.find(time_ns) for time_ns in past]
            positions, newest = self._joints.at(present), self._joints.newest()
        assert newest is not None  # at() has found one
        return [None if p is None else self._units(p) for p in before], self._units(positions), newest[0]

    def _units(self, positions: np.ndarray) -> np.ndarray:
        return self._settings.state_units.to_policy(positions).astype(np.float32)

    def _joined(self, frames: dict[str, Frame]) -> None:
        stamps = {name: nanoseconds(frame.header.stamp) for name, frame in frames.items()}
        oldest = min(stamps, key=lambda name: stamps[name])
        stamp_ns = stamps[oldest]
        if stamp_ns <= self._last_set_ns:
            return
        self._last_set_ns = stamp_ns
        self.sets += 1
        received_ns = dict(self._receipts[oldest])[stamp_ns]
        times = step_times(stamp_ns, self._spec.observation_steps, self._period_ns)[:-1]
        past = [self._frames_near(time_ns) for time_ns in times]
        self._ready(FrameSet(stamp_ns, received_ns, self._now_ns, frames, past))

    def _frames_near(self, time_ns: int) -> dict[str, Frame] | None:
        """A frame of each camera from that time; None where one has none."""
        near = {
            name: past.nearest(time_ns, self._settings.history_tolerance_ns)
            for name, past in self._past.items()
        }
        found = {name: frame for name, frame in near.items() if frame is not None}
        return found if len(found) == len(near) else None

    def _joint_fault(self, message: str) -> None:
        self.joint_faults += 1
        self.joint_fault = message
        self._report(message)


def _stacked(steps: Sequence[_Step], valid: Sequence[bool], joint_stamp_ns: int) -> Observed:
    """The observation of several steps, oldest first."""
    observation = Observation(
        images={name: np.stack([step.images[name] for step in steps]) for name in steps[0].images},
        state=np.stack([step.state for step in steps]),
        valid=np.array(valid, np.bool_),
    )
    stamps = tuple(stamp_ns for step in steps for stamp_ns in step.frame_stamps_ns)
    return Observed(observation, stamps, joint_stamp_ns)
