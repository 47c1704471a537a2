"""A vehicle's trajectory: with a stand-in of Autoware's messages, and with the real ones where they are."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from builtin_interfaces.msg import Duration
from geometry_msgs.msg import Pose
from rclpy.lifecycle import TransitionCallbackReturn
from std_msgs.msg import Header, UInt64
from std_srvs.srv import SetBool
from vla_simd_ros.msg import ActionChunk, ExecutorState

from vla_simd_ros.control.plan import Ahead
from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.autoware_output import AutowareOutput
from vla_simd_ros.nodes.chunk_executor_node import ChunkExecutorNode
from vla_simd_ros.nodes.executor_settings import PARAMETERS, settings_from
from vla_simd_ros.nodes.messages import nanoseconds, stamp
from vla_simd_ros.nodes.parameters import ParameterError

MS = 1_000_000
NOW = 1_000_000 * MS
COLUMNS = ["x", "y", "yaw", "longitudinal_velocity", "front_wheel_angle"]
SPEED = COLUMNS.index("longitudinal_velocity")


@dataclass
class Point:
    """The fields of autoware_planning_msgs/TrajectoryPoint."""

    time_from_start: Duration = field(default_factory=Duration)
    pose: Pose = field(default_factory=Pose)
    longitudinal_velocity_mps: float = 0.0
    lateral_velocity_mps: float = 0.0
    acceleration_mps2: float = 0.0
    heading_rate_rps: float = 0.0
    front_wheel_angle_rad: float = 0.0
    rear_wheel_angle_rad: float = 0.0


@dataclass
class Trajectory:
    """The fields of autoware_planning_msgs/Trajectory."""

    header: Header = field(default_factory=Header)
    points: list[Point] = field(default_factory=list)


class Network:
    """A node that keeps what is published."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def create_publisher(self, kind: Any, topic: str, profile: Any) -> Any:
        assert topic == "trajectory"
        self.publish = self.sent.append
        return self


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    package, messages = ModuleType("autoware_planning_msgs"), ModuleType("autoware_planning_msgs.msg")
    messages.Trajectory, messages.TrajectoryPoint = Trajectory, Point  # type: ignore[attr-defined]
    package.msg = messages  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "autoware_planning_msgs", package)
    monkeypatch.setitem(sys.modules, "autoware_planning_msgs.msg", messages)


@pytest.fixture
def output(stand_in: None) -> AutowareOutput:
    network = Network()
    made = AutowareOutput(network, COLUMNS, 100 * MS, "map")
    made.sent = network.sent  # type: ignore[attr-defined]
    return made


def plan(first_ns: int, count: int) -> Ahead:
    """Rows 100 ms apart: one metre each, turning, at 10 m/s."""
    rows = np.array([[float(i), -float(i), 0.1 * i, 10.0, 0.02] for i in range(count)])
    return Ahead(first_ns + np.arange(count) * 100 * MS, rows)


def times(message: Any) -> list[int]:
    return [nanoseconds(point.time_from_start) // MS for point in message.points]


def test_stale_points_are_dropped_and_the_others_timed_from_now(output: Any) -> None:
    output.send(np.zeros(5), NOW, plan(NOW - 150 * MS, 6))
    (message,) = output.sent
    assert (nanoseconds(message.header.stamp), message.header.frame_id) == (NOW, "map")
    assert times(message) == [50, 150, 250, 350]
    assert [point.pose.position.x for point in message.points] == [2.0, 3.0, 4.0, 5.0]
    last = message.points[-1]
    assert (last.pose.position.y, last.pose.position.z) == (-5.0, 0.0)
    heading = 2.0 * math.atan2(last.pose.orientation.z, last.pose.orientation.w)
    assert heading == pytest.approx(0.5)
    assert (last.longitudinal_velocity_mps, last.front_wheel_angle_rad) == (10.0, 0.02)
    assert (last.acceleration_mps2, last.rear_wheel_angle_rad) == (0.0, 0.0)


def test_a_point_of_just_now_is_kept(output: Any) -> None:
    output.send(np.zeros(5), NOW, plan(NOW, 2))
    assert times(output.sent[0]) == [0, 100]


def test_the_row_in_force_stands_alone_when_nothing_follows(output: Any) -> None:
    output.send(np.zeros(5), NOW, plan(NOW - 10 * MS, 1))
    assert times(output.sent[0]) == [0]
    assert output.sent[0].points[0].longitudinal_velocity_mps == 10.0


def test_a_stop_is_the_last_trajectory_without_velocity(output: Any) -> None:
    output.send(np.zeros(5), NOW, None)
    assert output.sent == [], "no trajectory to stop on"
    output.send(np.zeros(5), NOW, plan(NOW, 3))
    output.send(np.zeros(5), NOW + 50 * MS, None)
    moving, standing = output.sent
    assert [p.pose for p in standing.points] == [p.pose for p in moving.points]
    assert {p.longitudinal_velocity_mps for p in standing.points} == {0.0}
    assert {p.front_wheel_angle_rad for p in standing.points} == {0.02}
    assert times(standing) == [0, 50, 150]


def settings(**changes: Any) -> Any:
    values = {param.name: param.default for param in PARAMETERS}
    limits = {"position_lower": [-1e4], "position_upper": [1e4]}
    return settings_from({**values, **limits, "output": "autoware_trajectory", "joints": COLUMNS, **changes})


@pytest.mark.parametrize(
    "joints", [["x", "y", "yaw"], [*COLUMNS, "pitch"], ["x", "y", "longitudinal_velocity"]]
)
def test_other_columns_are_refused(stand_in: None, joints: list[str]) -> None:
    words = (
        "a vehicle's trajectory has the columns x, y, yaw, longitudinal_velocity and, where wanted, z, lat"
    )
    with pytest.raises(ParameterError, match=words):
        settings(joints=joints)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "autoware_planning_msgs", None)
    with pytest.raises(ParameterError, match="needs the package autoware_planning_msgs"):
        settings()


def test_no_other_output_needs_the_package() -> None:
    assert settings(output="joint_trajectory").output == "joint_trajectory"


@pytest.mark.needs_autoware
def test_the_stand_in_has_the_fields_of_the_real_messages() -> None:
    from autoware_planning_msgs import msg

    assert set(msg.TrajectoryPoint.get_fields_and_field_types()) == set(Point.__dataclass_fields__)
    assert set(msg.Trajectory.get_fields_and_field_types()) == set(Trajectory.__dataclass_fields__)


@pytest.mark.needs_autoware
def test_the_node_publishes_the_plan_and_a_stop(ros: Any) -> None:
    from autoware_planning_msgs import msg

    node = ros.add(
        ChunkExecutorNode, output="autoware_trajectory", joints=COLUMNS, control_rate=10.0, frame_id="map",
        position_lower=[-1e4, -1e4, -10.0, 0.0, -0.6], position_upper=[1e4, 1e4, 10.0, 8.0, 0.6],
    )  # fmt: skip
    assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
    sent: list[Any] = ros.collect(msg.Trajectory, "trajectory", qos.COMMAND)
    states: list[ExecutorState] = ros.collect(ExecutorState, "executor_state", qos.STATE)
    epochs = ros.publisher(UInt64, "epoch", qos.LATCHED)
    chunks = ros.publisher(ActionChunk, "action_chunk", qos.CHUNK)
    assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    ros.spin_until(lambda: node.count_publishers("action_chunk") == 1, "the publisher")
    epochs.publish(UInt64(data=1))
    ros.spin_until(lambda: node._pipeline._loop.timeline.epoch == 1, "the epoch")
    message = ActionChunk(
        sequence=1, epoch=1, action_names=COLUMNS, step_period=0.1, horizon=6, window=6,
        actions=plan(0, 6).rows.reshape(-1).tolist(),
    )  # fmt: skip
    message.header.stamp = stamp(ros.now_ns)

    def arrived() -> bool:
        # Again, should the publisher have been found by the graph before the subscription has found it.
        chunks.publish(message)
        return bool(node._pipeline._loop.chunks_received)

    ros.spin_until(arrived, "the chunk")
    ros.set_time(ros.now_ns + 150 * MS)
    ros.spin_until(lambda: sent, "a trajectory")
    assert [round(p.pose.position.x) for p in sent[0].points] == [2, 3, 4, 5]
    assert times(sent[0]) == [50, 150, 250, 350]
    assert {p.longitudinal_velocity_mps for p in sent[0].points} == {8.0}, "within its limit"
    assert sent[0].header.frame_id == "map"
    ros.call(SetBool, "hold", SetBool.Request(data=True))
    ros.set_time(ros.now_ns + 100 * MS)
    ros.spin_until(lambda: len(sent) > 1, "a stop")
    assert {p.longitudinal_velocity_mps for p in sent[-1].points} == {0.0}
    ros.spin_until(lambda: states[-1].hold_requested, "the state to say so")
