"""Observations of several steps from a stream of frames that are late, lost, repeated or out of order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from sensor_msgs.msg import Image, JointState

from vla_simd_ros.inference import Observation
from vla_simd_ros.nodes import images as images_module
from vla_simd_ros.nodes.messages import stamp
from vla_simd_ros.nodes.observations import Observations, ObservationUnavailable
from vla_simd_ros.nodes.param import checked
from vla_simd_ros.nodes.policy_settings import PARAMETERS, settings_for
from vla_simd_ros.nodes.query_worker import FrameSet
from vla_simd_ros.policies.base import CameraSpec, PolicySpec

MS = 1_000_000
START = 1_000_000 * MS
CAMERA = CameraSpec(height=2, width=2)


class Stream:
    """A robot on a clock that the test moves: ``tick`` is a time, and the colour of its frame."""

    def __init__(self, cameras: tuple[str, ...] = ("front",), steps: int = 2, **changes: Any) -> None:
        spec = PolicySpec(
            "fake", dict.fromkeys(cameras, CAMERA), 1, 0, 1, 4, 4,
            observation_steps=steps, takes_observation_mask=True,
        )  # fmt: skip
        values = checked(PARAMETERS, {"joints": ["pan"], "step_period": 0.1, **changes})
        self.sets: list[FrameSet] = []
        self.faults: list[str] = []
        settings = settings_for(values, spec)
        self.observations = Observations(settings, spec, self.sets.append, self.faults.append)
        self.now_ns = START

    def at(self, tick: float) -> int:
        return START + round(tick * 100 * MS)

    def frame(self, tick: float, camera: str = "front", colour: int | None = None) -> None:
        value = round(tick) if colour is None else colour
        message = Image(height=2, width=2, encoding="rgb8", step=6, data=bytes([value] * 12))
        message.header.stamp = stamp(self.at(tick))
        self.now_ns = max(self.now_ns, self.at(tick))
        self.observations.frame(camera, message, self.now_ns)

    def joints(self, *ticks: float) -> None:
        """Joint states whose position is their time in ticks."""
        for tick in ticks:
            message = JointState(name=["pan"], position=[float(tick)])
            message.header.stamp = stamp(self.at(tick))
            self.now_ns = max(self.now_ns, self.at(tick))
            self.observations.joint_state(message, self.now_ns)

    def observe(self) -> Observation:
        return self.observations.observe(self.sets[-1], self.now_ns).observation


def seen(observation: Observation, camera: str = "front") -> tuple[list[int], list[float], list[bool]]:
    """Colour, state and validity of each step."""
    assert observation.state is not None and observation.valid is not None
    colours = [int(image[0, 0, 0]) for image in observation.images[camera]]
    return colours, [round(float(x), 3) for x in observation.state[:, 0]], observation.valid.tolist()


def test_the_steps_before_are_those_of_their_time() -> None:
    stream = Stream(steps=3)
    for tick in range(5):
        stream.joints(tick)
        stream.frame(tick)
    observation = stream.observe()
    assert observation.images["front"].shape == (3, 2, 2, 3)
    assert seen(observation) == ([2, 3, 4], [2.0, 3.0, 4.0], [True] * 3)


def test_the_first_observation_stands_for_those_before_it() -> None:
    stream = Stream(steps=3)
    stream.joints(0, 1)
    stream.frame(0)
    assert seen(stream.observe()) == ([0, 0, 0], [0.0] * 3, [False, False, True])
    stream.frame(1)
    assert seen(stream.observe()) == ([0, 0, 1], [0.0, 0.0, 1.0], [False, True, True])


def test_frames_faster_than_the_steps_are_not_taken_one_after_the_other() -> None:
    """A camera at three times the rate: the step before is three frames back, not one."""
    stream = Stream()
    for third in range(10):
        stream.joints(third / 3)
        stream.frame(third / 3, colour=third)
    assert seen(stream.observe()) == ([6, 9], [2.0, 3.0], [True, True])


def test_the_state_of_a_step_is_that_of_its_time_not_of_its_frame() -> None:
    stream = Stream()
    stream.joints(0, 0.5, 1, 1.5, 2)
    stream.frame(0.7, colour=7)
    stream.frame(2)
    stream.observations._joints.clear()
    stream.observations._joint_stamps.reset()
    stream.joints(0.5, 1.25, 2)
    assert seen(stream.observe()) == ([7, 2], [1.0, 2.0], [True, True])


def test_a_frame_that_was_lost_leaves_its_step_out() -> None:
    stream = Stream(steps=3)
    for tick in (0, 1, 3):
        stream.joints(tick, tick + 0.5)
        stream.frame(tick)
    assert seen(stream.observe()) == ([1, 3, 3], [1.0, 3.0, 3.0], [True, False, True])


def test_repeated_and_older_frames_change_nothing() -> None:
    stream = Stream(steps=3)
    for tick in (0, 1, 1, 0.9, 2, 1.1, 2, 3):
        stream.joints(tick)
        stream.frame(tick, colour=round(tick * 10))
    assert seen(stream.observe())[0] == [10, 20, 30]
    assert len(stream.faults) == 8, "four frames and four joint states are reported"


def test_frames_that_come_late_are_at_their_time() -> None:
    """The wrist camera delivers half a second late, all at once; its frames belong to their own moments."""
    stream = Stream(("front", "wrist"), steps=2)
    for tick in range(6):
        stream.joints(tick)
        stream.frame(tick)
    assert not stream.sets
    for tick in range(6):
        stream.frame(tick, "wrist", colour=100 + tick)
    assert len(stream.sets) == 6
    for tick, frames in enumerate(stream.sets):
        observation = stream.observations.observe(frames, stream.now_ns).observation
        before = max(0, tick - 1)
        assert seen(observation)[0] == [before, tick]
        assert seen(observation, "wrist")[0] == [100 + before, 100 + tick]
        assert seen(observation)[2] == [tick > 0, True]


def test_a_step_needs_a_frame_of_every_camera() -> None:
    stream = Stream(("front", "wrist"))
    stream.joints(0, 1)
    stream.frame(0)
    for camera in ("front", "wrist"):
        stream.frame(1, camera)
    assert seen(stream.observe())[2] == [False, True]


@pytest.mark.parametrize(("tolerance", "valid"), [(0.0, True), (0.03, False), (0.041, True)])
def test_the_tolerance_of_a_step(tolerance: float, valid: bool) -> None:
    stream = Stream(history_tolerance=tolerance)
    stream.joints(0, 1, 1.4)
    stream.frame(0)
    stream.frame(1.4)
    assert seen(stream.observe())[2] == [valid, True]


def test_a_step_without_joint_state_is_left_out_and_the_newest_needs_one() -> None:
    stream = Stream(joint_max_extrapolation=0.01)
    stream.frame(0)
    stream.frame(1)
    with pytest.raises(ObservationUnavailable, match="no joint state has been received"):
        stream.observe()
    stream.joints(1)
    assert seen(stream.observe()) == ([1, 1], [1.0, 1.0], [False, True])


def test_the_past_is_forgotten_when_something_new_begins() -> None:
    stream = Stream()
    for tick in (0, 1):
        stream.joints(tick)
        stream.frame(tick)
    stream.observations.forget_past()
    stream.joints(2)
    stream.frame(2)
    assert seen(stream.observe())[2] == [False, True]
    stream.observations.clock_jumped()
    stream.joints(3)
    stream.frame(3)
    assert seen(stream.observe())[2] == [False, True]


def test_the_stamps_tell_what_it_was_made_of() -> None:
    stream = Stream(("front", "wrist"), steps=3)
    for tick in (0, 1):
        stream.joints(tick)
        stream.frame(tick)
        stream.frame(tick + 0.05, "wrist")
    observed = stream.observations.observe(stream.sets[-1], stream.now_ns)
    first, second = [stream.at(0), stream.at(0.05)], [stream.at(1), stream.at(1.05)]
    assert list(observed.frame_stamps_ns) == [*first, *first, *second]
    assert observed.joint_stamp_ns == stream.at(1)


def test_memory_is_bounded() -> None:
    stream = Stream(steps=3)
    for tick in range(1000):
        stream.frame(tick / 10)
    # The ten newest frames, and those of two steps and a half before them.
    assert len(stream.observations._past["front"]) == 10 + 25


def test_a_policy_of_one_step_keeps_no_past() -> None:
    stream = Stream(steps=1)
    for tick in (0, 1):
        stream.joints(tick)
        stream.frame(tick)
    assert len(stream.observations._past["front"]) == 0
    observation = stream.observe()
    assert observation.images["front"].shape == (2, 2, 3) and observation.valid is None


def test_a_picture_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(steps=1)
    stream.joints(0)
    stream.frame(0)
    monkeypatch.setattr(images_module, "check_image", None)
    assert np.all(stream.observe().images["front"] == 0)
