"""What the policy node's diagnostics say of refused messages, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vla_simd_ros.nodes.camera_health import CameraHealth
from vla_simd_ros.nodes.diagnostics import Level, Status
from vla_simd_ros.nodes.policy_report import Refusals, observation_status

NOW = 10**12
SECOND = 10**9
SETTINGS: Any = SimpleNamespace(camera_timeout_ns=SECOND, joint_timeout_ns=SECOND, state_topic="joint_states")


def received(**changes: Any) -> Any:
    health = CameraHealth()
    health.usable(NOW, NOW)
    values = {
        "health": {"front": health},
        "joints_ns": NOW,
        "joint_faults": 0,
        "joint_fault": "",
        "sets": 1,
    }
    return SimpleNamespace(**{**values, **changes})


def report(observations: Any, refusals: Refusals, now_ns: int = NOW) -> Status:
    return observation_status(observations, SETTINGS, refusals, True, now_ns, NOW)


def test_refused_frames_are_told_once_and_counted_for_good() -> None:
    observations, refusals = received(), Refusals()
    assert report(observations, refusals).level == Level.OK
    for _ in range(2):
        observations.health["front"].fault("too small")
    first, second = report(observations, refusals), report(observations, refusals)
    assert first.level == Level.WARN
    assert (
        "camera 'front': 2 frames refused since the last report, the last one: too small" in first.messages[0]
    )
    assert second.level == Level.OK
    assert first.values["front: frames refused"] == second.values["front: frames refused"] == 2


def test_refused_joint_states_are_told_once() -> None:
    observations = received(joint_faults=3, joint_fault="'wrist' is missing")
    refusals = Refusals()
    first, second = report(observations, refusals), report(observations, refusals)
    assert first.level == Level.WARN
    assert "3 messages of joint_states refused since the last report" in first.messages[0]
    assert "'wrist' is missing" in first.messages[0]
    assert second.level == Level.OK


def test_joint_states_are_told_as_refused_for_as_long_as_there_is_no_other() -> None:
    observations = received(joints_ns=None, joint_faults=1, joint_fault="'wrist' is missing")
    refusals = Refusals()
    for _ in range(2):
        status = report(observations, refusals)
        assert status.level == Level.WARN
        assert "'wrist' is missing" in status.messages[0]
    observations.joints_ns = NOW
    assert report(observations, refusals).level == Level.OK


def test_a_camera_whose_frames_are_all_refused_is_an_error_until_one_can_be_used() -> None:
    observations, refusals = received(), Refusals()
    observations.health["front"].fault("too small")
    late = NOW + 3 * SECOND
    observations.joints_ns = late
    for _ in range(2):
        status = report(observations, refusals, late)
        assert status.level == Level.ERROR
        assert "too small" in status.messages[0]
    observations.health["front"].usable(late, late)
    assert report(observations, refusals, late).level == Level.OK
