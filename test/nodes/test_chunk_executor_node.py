"""The chunk executor as a node: topics in, bounded commands out, and every way a chunk can be bad."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TwistStamped
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray, String, UInt64
from std_srvs.srv import SetBool
from trajectory_msgs.msg import JointTrajectory
from vla_simd_ros.msg import ActionChunk, CommittedPrefix, ExecutorState, LatencyBudget, QueryTiming

from vla_simd_ros.nodes import qos
from vla_simd_ros.nodes.chunk_executor_node import ChunkExecutorNode
from vla_simd_ros.nodes.executor_settings import PARAMETERS
from vla_simd_ros.nodes.messages import nanoseconds, stamp

MS = 1_000_000
PERIOD = 100 * MS
JOINTS = ["pan", "lift"]
SETTINGS: dict[str, Any] = {
    "joints": JOINTS,
    "control_rate": 10.0,
    "state_rate": 10.0,
    "position_lower": [-1.0],
    "position_upper": [1.0],
    "velocity_limit": [5.0],
    "acceleration_limit": [50.0],
}


class Arm:
    """An executor under test, with everything around it played by the test."""

    def __init__(
        self, ros: Any, command: tuple[Any, str] = (JointTrajectory, "joint_trajectory"), **changes: Any
    ) -> None:
        self.ros = ros
        self.node = ros.add(ChunkExecutorNode, **{**SETTINGS, **changes})
        assert self.node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        self.commands = ros.collect(*command, qos.COMMAND)
        self.states: list[ExecutorState] = ros.collect(ExecutorState, "executor_state", qos.STATE)
        self.epochs = ros.publisher(UInt64, "epoch", qos.LATCHED)
        self.joints = ros.publisher(JointState, "joint_states", qos.JOINTS)
        self.chunks = ros.publisher(ActionChunk, "action_chunk", qos.CHUNK)
        assert self.node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        ros.spin_until(
            lambda: self.node.count_publishers("action_chunk") == 1, "the node to see the publisher"
        )
        self.sequence = 0
        self.measured: list[float] | None = [0.0, 0.0]
        self.announce(1)

    def announce(self, epoch: int) -> None:
        self.epochs.publish(UInt64(data=epoch))
        self.settle_on(lambda: self.last_state().epoch == epoch, "the epoch")

    def last_state(self) -> ExecutorState:
        return self.states[-1] if self.states else ExecutorState()

    def settle_on(self, condition: Any, what: str) -> None:
        """Step until the condition holds, within a few steps."""
        for _ in range(5):
            self.step()
            if condition():
                return
        raise AssertionError(f"stepped in vain for {what}; state: {self.last_state()}")

    def step(self, count: int = 1) -> ExecutorState:
        """Run control steps; the state of the last one."""
        for _ in range(count):
            if self.measured is not None:
                self.joint_state(self.measured)
            self.ros.set_time(self.ros.now_ns + PERIOD)
            self.ros.spin_until(self.has_state_of_now, "a state")
        return self.states[-1]

    def has_state_of_now(self) -> bool:
        return bool(self.states) and nanoseconds(self.states[-1].header.stamp) >= self.ros.now_ns

    def joint_state(self, positions: list[float], names: list[str] = JOINTS, age_ns: int = 0) -> None:
        message = JointState(name=names, position=positions)
        message.header.stamp = stamp(self.ros.now_ns - age_ns)
        self.joints.publish(message)

    def chunk(self, rows: list[float], **changes: Any) -> None:
        """Send a chunk and wait until the node has it."""
        self.sequence += 1
        actions = np.repeat(np.array(rows, dtype=np.float32), 2)
        message = ActionChunk(
            sequence=self.sequence, epoch=1, action_names=JOINTS, step_period=0.1,
            horizon=len(rows), window=len(rows), actions=actions.tolist(),
        )  # fmt: skip
        message.header.stamp = stamp(self.ros.now_ns)
        for name, value in changes.items():
            target = message.header if name == "stamp" else message
            setattr(target, name, value)
        before = self.received
        self.chunks.publish(message)
        self.ros.spin_until(lambda: self.received > before, "the chunk to arrive")

    @property
    def received(self) -> int:
        return int(self.node._pipeline._loop.chunks_received)


def rejected(state: ExecutorState) -> dict[str, int]:
    return dict(zip(state.rejection_reasons, state.rejection_counts, strict=True))


def positions(commands: list[JointTrajectory]) -> list[float]:
    return [command.points[0].positions[0] for command in commands]


def test_rows_become_commands_one_per_control_step(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.chunk([0.1, 0.2, 0.3])
    state = arm.step(3)
    assert positions(arm.commands) == pytest.approx([0.1, 0.2, 0.3])
    assert arm.commands[0].joint_names == JOINTS
    assert arm.commands[0].points[0].time_from_start.nanosec == PERIOD
    assert (state.state, state.reason) == (ExecutorState.EXECUTING, "")
    assert (state.executed_row, state.sequence, state.executed_steps) == (2, 1, 3)
    assert state.executed_row_age_ms == pytest.approx(300.0)
    assert state.mode == "lagged"


def test_time_aligned_execution_drops_stale_rows(ros: Any) -> None:
    arm = Arm(ros)
    arm.step()
    arm.chunk([0.0, 0.05, 0.1, 0.15, 0.2], stamp=stamp(ros.now_ns - 100 * MS))
    state = arm.step()
    assert positions(arm.commands)[-1] == pytest.approx(0.1)
    assert (state.stale_rows_dropped, state.executed_row) == (2, 2)
    assert state.delay_steps_median == 1.0
    assert (state.c1_margin_steps, state.c2_margin_steps) == (4.0, 3.0)
    assert state.buffered_steps == 2


def test_the_latency_budget_of_a_chunk_is_published_with_its_first_command(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    budgets: list[LatencyBudget] = ros.collect(LatencyBudget, "latency_budget", qos.STATE)
    timing = QueryTiming(
        transport_ms=3.0, sync_ms=2.0, wait_ms=5.0, preprocess_ms=1.5, query_ms=60.0, step_ms=7.0,
        postprocess_ms=0.5, publish_ms=1.0, observation_to_publish_ms=80.0,
    )  # fmt: skip
    captured = ros.now_ns - 90 * MS
    arm.chunk([0.1, 0.2, 0.3], stamp=stamp(captured), timing=timing)
    arm.step(3)
    ros.spin_until(lambda: budgets, "the budget")
    ros.settle(3)
    (budget,) = budgets
    assert (nanoseconds(budget.header.stamp), budget.sequence, budget.row) == (captured, 1, 0)
    assert (budget.transport_ms, budget.query_ms, budget.publish_ms) == (3.0, 60.0, 1.0)
    assert (budget.delivery_ms, budget.command_ms) == pytest.approx((10.0, 100.0))
    assert budget.total_ms == pytest.approx(190.0)
    assert budget.unaccounted_ms == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_commanded_without_joint_states(ros: Any) -> None:
    arm = Arm(ros)
    arm.ros.set_time(ros.now_ns + 20 * PERIOD)
    arm.measured = None
    arm.chunk([0.1] * 9)
    state = arm.step()
    assert arm.commands == []
    assert "joint state" in state.reason


def test_the_first_command_starts_at_the_measured_position(ros: Any) -> None:
    arm = Arm(ros, velocity_limit=[1.0], acceleration_limit=[5.0])
    arm.measured = [0.7, 0.7]
    arm.step()
    arm.chunk([-1.0] * 9)
    arm.step(2)
    assert positions(arm.commands)[0] == pytest.approx(0.7 - 0.05)
    assert positions(arm.commands)[1] == pytest.approx(0.7 - 0.15)


BAD_CHUNKS: list[tuple[dict[str, Any], str]] = [
    ({"actions": [0.1, float("nan"), 0.1, 0.1]}, "not_finite"),
    ({"actions": [0.1] * 6}, "wrong_width"),
    ({"actions": [0.1] * 5}, "wrong_shape"),
    ({"action_names": ["pan", "claw"]}, "unknown_joint"),
    ({"action_names": ["pan"]}, "missing_joint"),
    ({"action_names": ["pan", "pan"]}, "duplicate_joint"),
    ({"epoch": 0}, "older_epoch"),
    ({"epoch": 2}, "unknown_epoch"),
    ({"sequence": 1}, "duplicate_sequence"),
    ({"sequence": 0}, "sequence_backwards"),
    ({"step_period": 1e300}, "bad_step_period"),
    ({"window": 3}, "bad_window"),
    ({"stamp": stamp(0)}, "stamp_zero"),
    ({"stamp": stamp(2_000_000_000_000)}, "stamp_future"),
    ({"stamp": stamp(999_000_000_000)}, "stamp_backwards"),
]


def test_every_bad_chunk_is_rejected_by_name_and_the_good_one_goes_on(ros: Any) -> None:
    arm = Arm(ros)
    arm.chunk([0.05 * i for i in range(40)])
    arm.step()
    executed = []
    for changes, reason in BAD_CHUNKS:
        arm.chunk([0.9, 0.9], **changes)
        ros.spin_until(lambda r=reason: r in rejected(arm.states[-1]), f"rejection as {reason}")
        arm.step()
        executed.append(positions(arm.commands)[-1])
    assert rejected(arm.states[-1]) == {reason: 1 for _, reason in BAD_CHUNKS}
    assert executed == pytest.approx([0.05 * i for i in range(2, 2 + len(executed))])
    assert arm.states[-1].chunks_rejected == len(BAD_CHUNKS)


def test_columns_in_another_order_are_sorted_by_name(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.chunk([0.0], action_names=["lift", "pan"], actions=[0.1, 0.2])
    arm.step()
    assert list(arm.commands[-1].points[0].positions) == pytest.approx([0.2, 0.1])


def test_a_new_epoch_drops_rows_and_holds_until_its_first_chunk(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.chunk([0.1] * 20)
    arm.step(2)
    arm.announce(2)
    state = arm.step(2)
    assert state.state == ExecutorState.WAITING
    assert "epoch 2" in state.reason
    arm.chunk([0.2] * 9, epoch=2)
    state = arm.step(2)
    assert (state.state, state.epoch) == (ExecutorState.EXECUTING, 2)


def test_an_epoch_announced_after_a_newer_one_is_taken_as_a_restart(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.announce(9)
    arm.announce(3)
    arm.chunk([0.1] * 3, epoch=3)
    assert arm.step().state == ExecutorState.EXECUTING


def test_starvation_holds_and_then_stops_commanding(ros: Any) -> None:
    arm = Arm(ros, mode="lagged", starvation_timeout=0.3)
    arm.chunk([0.1])
    arm.step()
    state = arm.step(3)
    assert (state.state, state.starved_steps) == (ExecutorState.STARVED, 3)
    assert positions(arm.commands) == pytest.approx([0.1] * 4)
    state = arm.step(3)
    assert state.state == ExecutorState.STOPPED
    assert len(arm.commands) == 4
    assert "commands have stopped" in state.reason


def test_the_hold_service_stops_at_once_and_only_a_release_restarts(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.chunk([0.1] * 50)
    arm.step(2)
    response = ros.call(SetBool, "hold", SetBool.Request(data=True))
    assert response.success
    arm.chunk([0.5] * 50)
    state = arm.step(3)
    assert (state.state, state.hold_requested) == (ExecutorState.HOLDING, True)
    assert positions(arm.commands)[-1] == pytest.approx(0.1)
    ros.call(SetBool, "hold", SetBool.Request(data=False))
    assert arm.step().state == ExecutorState.WAITING
    arm.chunk([0.2] * 5)
    assert arm.step().state == ExecutorState.EXECUTING


def test_a_hold_survives_a_new_configuration(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    ros.call(SetBool, "hold", SetBool.Request(data=True))
    arm.node.trigger_deactivate()
    arm.node.trigger_cleanup()
    assert arm.node.trigger_configure() == TransitionCallbackReturn.SUCCESS
    assert arm.node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    state = arm.step(2)
    assert (state.state, state.hold_requested) == (ExecutorState.HOLDING, True)


def call_stop(ros: Any, data: bool) -> Any:
    return ros.call(SetBool, "emergency_stop", SetBool.Request(data=data))


def test_an_emergency_stop_outlasts_the_lifecycle_and_only_its_service_releases(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.chunk([0.02 * i for i in range(50)])
    arm.step(3)
    button = ros.publisher(Bool, "emergency_stop", qos.NOT_LATCHED)
    sent = len(arm.commands)
    button.publish(Bool(data=True))
    ros.spin_until(lambda: arm.states[-1].emergency_stop, "the stop")
    button.publish(Bool(data=False))
    ros.settle()
    ros.call(SetBool, "hold", SetBool.Request(data=False))
    arm.chunk([0.5] * 50)
    state = arm.step(2)
    assert (state.state, state.emergency_stop) == (ExecutorState.EMERGENCY_STOPPED, True)
    arm.node.trigger_deactivate()
    arm.node.trigger_cleanup()
    assert arm.node.trigger_configure() == TransitionCallbackReturn.SUCCESS
    assert arm.node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    assert arm.step(2).state == ExecutorState.EMERGENCY_STOPPED
    assert len(arm.commands) == sent
    assert call_stop(ros, False).success
    assert arm.step().state == ExecutorState.WAITING
    arm.announce(2)
    arm.chunk([0.1] * 5, epoch=2)
    assert arm.step().state == ExecutorState.EXECUTING


def test_a_pressed_button_is_not_released_by_the_service(ros: Any) -> None:
    node = ros.add(ChunkExecutorNode, **SETTINGS)
    button = ros.publisher(Bool, "emergency_stop", qos.LATCHED)
    button.publish(Bool(data=True))
    ros.spin_until(lambda: node._emergency.latched, "the stop, heard unconfigured")
    response = call_stop(ros, False)
    assert (response.success, node._emergency.latched) == (False, True)
    assert "the last message on the topic emergency_stop says true" in response.message
    button.publish(Bool(data=False))
    ros.settle()
    assert node._emergency.latched
    assert call_stop(ros, False).success and not node._emergency.latched


def test_the_service_stops_too_and_nothing_is_sent_on_deactivation(ros: Any) -> None:
    arm = Arm(ros, mode="lagged", acceleration_limit=[5.0])
    arm.chunk([0.2 * i for i in range(5)])
    arm.step(3)
    sent = len(arm.commands)
    assert call_stop(ros, True).success
    arm.node.trigger_deactivate()
    ros.settle()
    assert len(arm.commands) == sent


def test_an_emergency_stop_ends_the_braking_of_a_deactivation(ros: Any) -> None:
    arm = Arm(ros, mode="lagged", acceleration_limit=[2.0])
    button = ros.publisher(Bool, "emergency_stop", qos.NOT_LATCHED)
    arm.chunk([0.5] * 50)
    arm.step(4)
    sent = len(arm.commands)
    button.publish(Bool(data=True))
    time.sleep(0.2)
    arm.node.trigger_deactivate()
    ros.settle()
    assert arm.node._emergency.latched
    assert len(arm.commands) == sent + 1, "several more steps of braking"


def test_motion_does_not_start_with_a_joint_far_outside_its_limits(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.measured = [0.0, 1.5]
    arm.step()
    arm.chunk([0.1] * 9)
    state = arm.step()
    assert state.state == ExecutorState.HOLDING
    assert "joint 'lift' is at 1.5, outside its limits of -1 to 1" in state.reason
    assert arm.commands == []


def test_committed_rows_are_told_to_who_listens(ros: Any) -> None:
    arm = Arm(ros, joints=["lift", "pan"])
    arm.step()
    arm.chunk([0.01 * i for i in range(30)], stamp=stamp(ros.now_ns - 2 * PERIOD))
    arm.step(2)
    committed: list[CommittedPrefix] = ros.collect(CommittedPrefix, "committed_prefix", qos.CHUNK)
    ros.spin_until(arm.node._pipeline._committed.get_subscription_count, "the subscription")
    arm.step()
    ros.spin_until(lambda: committed, "committed rows")
    message = committed[-1]
    assert list(message.joint_names) == ["lift", "pan"]
    assert (message.epoch, message.sequence, message.period_ns) == (1, 1, PERIOD)
    # Three executed; a chunk that is asked for now comes in two steps, one more is executed before.
    assert (message.executed, message.first_row) == (3, 6)
    assert list(message.rows[::2]) == pytest.approx([0.03, 0.04, 0.05, 0.06])


def test_a_second_publisher_is_seen_behind_a_remapping(ros: Any) -> None:
    def make(**options: Any) -> ChunkExecutorNode:
        return ChunkExecutorNode(cli_args=["--ros-args", "-r", "action_chunk:=/elsewhere"], **options)

    node = ros.add(make, **SETTINGS)
    node.trigger_configure()
    node.trigger_activate()
    states: list[ExecutorState] = ros.collect(ExecutorState, "executor_state", qos.STATE)
    for _ in range(2):
        ros.publisher(ActionChunk, "elsewhere", qos.CHUNK)
    ros.spin_until(lambda: node.count_publishers("/elsewhere") == 2, "both publishers")
    ros.set_time(ros.now_ns + PERIOD)
    ros.spin_until(lambda: states and states[-1].state == ExecutorState.HOLDING, "a hold")
    assert "2 publishers" in states[-1].reason


def test_a_second_publisher_of_chunks_holds_the_arm(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    diagnostics = ros.collect(DiagnosticArray, "/diagnostics", qos.STATE)
    arm.chunk([0.1] * 50)
    arm.step(2)
    second = ros.publisher(ActionChunk, "action_chunk", qos.CHUNK)
    ros.spin_until(lambda: arm.node.count_publishers("action_chunk") == 2, "the second publisher")
    state = arm.step()
    assert state.state == ExecutorState.HOLDING
    assert "2 publishers of action chunks, expected one" in state.reason
    arm.chunk([0.5] * 9)
    assert rejected(arm.step()) == {"second_publisher": 1}
    ros.spin_until(lambda: "2 publishers" in str(diagnostics[-1:]), "the diagnostics to say so")
    status = next(s for s in diagnostics[-1].status if s.name.endswith("execution"))
    assert status.level == DiagnosticStatus.ERROR
    ros.helper.destroy_publisher(second)
    ros.spin_until(lambda: arm.node.count_publishers("action_chunk") == 1, "the second publisher to go")
    arm.chunk([0.1] * 9)
    assert arm.step().state == ExecutorState.EXECUTING


@pytest.mark.parametrize(
    ("names", "values", "words"),
    [
        (["pan"], [0.0], "lacks ['lift']"),
        (JOINTS, [0.0, float("nan")], "'lift' is nan"),
        (JOINTS, [0.0], "2 names but 1 positions"),
    ],
)
def test_a_bad_joint_state_is_reported_and_holds_when_it_lasts(
    ros: Any, names: list[str], values: list[float], words: str
) -> None:
    arm = Arm(ros, mode="lagged", joint_timeout=0.25)
    diagnostics = ros.collect(DiagnosticArray, "/diagnostics", qos.STATE)
    arm.chunk([0.1] * 50)
    arm.step(2)
    arm.measured = None
    for _ in range(4):
        arm.joint_state(values, names)
        state = arm.step()
    assert state.state == ExecutorState.HOLDING
    assert "no joint state for" in state.reason
    ros.spin_until(lambda: words in str(diagnostics), f"diagnostics with {words}")
    arm.measured = [0.1, 0.1]
    arm.step(2)
    arm.chunk([0.1] * 9)
    assert arm.step().state == ExecutorState.EXECUTING


def test_extra_joints_are_passed_over(ros: Any) -> None:
    arm = Arm(ros, mode="lagged")
    arm.measured = None
    for _ in range(2):
        arm.joint_state([5.0, 0.3, 0.4], ["wheel", "lift", "pan"])
        arm.step()
    arm.chunk([0.4] * 5)
    assert arm.step().state == ExecutorState.EXECUTING
    assert list(arm.commands[0].points[0].positions) == pytest.approx([0.4, 0.4])


@pytest.mark.parametrize("age_ns", [-10_000 * MS, 5_000 * MS])
def test_joint_states_with_bad_stamps_are_not_used(ros: Any, age_ns: int) -> None:
    arm = Arm(ros, joint_timeout=0.25)
    arm.step()
    arm.measured = None
    for _ in range(4):
        arm.joint_state([0.0, 0.0], age_ns=age_ns)
        state = arm.step()
    assert state.state == ExecutorState.HOLDING


def test_a_dry_run_computes_and_commands_nothing(ros: Any) -> None:
    arm = Arm(ros, mode="lagged", dry_run=True)
    arm.chunk([0.1] * 5)
    state = arm.step(2)
    assert (state.state, state.dry_run, state.executed_steps) == (ExecutorState.EXECUTING, True, 2)
    assert arm.commands == []


def test_deactivation_brakes_within_the_limits_and_activation_starts_anew(ros: Any) -> None:
    arm = Arm(ros, mode="lagged", acceleration_limit=[10.0])
    arm.chunk([0.1, 0.3, 0.5, 0.7, 0.9])
    arm.step(2)
    moving = len(arm.commands)
    arm.node.trigger_deactivate()
    ros.spin_until(lambda: arm.states[-1].state == ExecutorState.INACTIVE, "the inactive state")
    ros.settle()
    assert len(arm.commands) > moving
    speeds = np.diff(positions(arm.commands)) / 0.1
    assert np.all(np.abs(np.diff(speeds)) <= 1.0 + 1e-6)
    assert arm.commands[-1].points[0].positions[0] <= 1.0
    count = len(arm.commands)
    arm.chunks.publish(ActionChunk())
    arm.step(3)
    assert len(arm.commands) == count
    assert arm.node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    arm.measured = [-0.5, -0.5]
    arm.step()
    arm.chunk([-0.5] * 3)
    arm.step()
    assert positions(arm.commands)[-1] == pytest.approx(-0.5)


def test_a_clock_jump_backwards_resets_cleanly(ros: Any) -> None:
    arm = Arm(ros, mode="time_aligned")
    arm.chunk([0.1] * 50)
    arm.step(2)
    ros.set_time(500_000_000_000)
    arm.states.clear()
    state = arm.step(3)
    assert state.state == ExecutorState.WAITING
    arm.chunk([0.1] * 20)
    assert arm.step().state == ExecutorState.EXECUTING


def test_a_float_array_output(ros: Any) -> None:
    arm = Arm(ros, (Float64MultiArray, "commands"), mode="lagged", output="float64_multi_array")
    arm.chunk([0.1])
    arm.step()
    assert list(arm.commands[0].data) == pytest.approx([0.1, 0.1])


def test_a_joint_state_output(ros: Any) -> None:
    arm = Arm(ros, (JointState, "joint_command"), mode="lagged", output="joint_state")
    arm.chunk([0.1])
    arm.step()
    assert arm.commands[0].name == JOINTS
    assert list(arm.commands[0].position) == pytest.approx([0.1, 0.1])
    assert nanoseconds(arm.commands[0].header.stamp) == ros.now_ns


def test_a_twist_output_is_a_velocity_that_decays(ros: Any) -> None:
    axes = [f"{part}_{axis}" for part in ("linear", "angular") for axis in "xyz"]
    arm = Arm(
        ros, (TwistStamped, "twist"), joints=axes, output="twist_stamped", mode="lagged", frame_id="tool0",
        starvation="decay", decay_time=0.1, acceleration_limit=[500.0],
    )  # fmt: skip
    arm.measured = None
    arm.chunk([0.0], action_names=axes, actions=[0.1, 0.2, 0.3, 0.4, 0.45, 0.4])
    state = arm.step()
    twist = arm.commands[0].twist
    assert (twist.linear.y, twist.angular.z) == pytest.approx((0.2, 0.4))
    assert arm.commands[0].header.frame_id == "tool0"
    state = arm.step()
    assert state.state == ExecutorState.STARVED
    assert arm.commands[1].twist.angular.z == pytest.approx(0.4 * np.exp(-1.0))


DEFAULTS = {param.name: param.default for param in PARAMETERS}

BAD_PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"control_rate": -5.0}, "control_rate: got -5.0, expected 1.0 to 1000.0"),
    ({"control_rate": float("nan")}, "control_rate: got nan"),
    ({"control_rate": 1e-12}, "control_rate: got 1e-12, expected 1.0 to 1000.0"),
    ({"state_rate": 1e-12}, "state_rate: got 1e-12, expected 0.1 to 1000.0"),
    ({"joint_timeout": float("inf")}, "joint_timeout: got inf, expected above 0 and at most 1000000.0"),
    ({"mode": "fast"}, "mode: got 'fast', expected one of lagged, time_aligned"),
    ({"joints": ["pan", "pan"]}, "expected different names"),
    (
        {"velocity_limit": [1.0, 2.0, 3.0]},
        "velocity_limit: got 3 values, expected one for all or one for each",
    ),
    ({"position_lower": [2.0]}, "position limits of joint 'pan' are 2.0 to 1.0, expected lower < upper"),
    ({"starvation": "decay"}, "'decay' is for velocities"),
    ({"output": "twist_stamped"}, "a twist has the components"),
    ({"robot_description": "/nowhere/robot.urdf"}, "robot_description: .*nowhere"),
    ({"robot_description": "<robot/>"}, "no movable joints"),
    ({"dry_run": 1}, "dry_run: got 1, expected bool"),
]


@pytest.mark.parametrize(("changes", "words"), BAD_PARAMETERS)
def test_bad_parameters_fail_configuration_and_can_be_put_right(
    ros: Any, changes: dict[str, Any], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    node = ros.add(ChunkExecutorNode, **{**SETTINGS, **changes})
    assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
    assert re.search(words, capfd.readouterr().err)
    right = {name: SETTINGS.get(name, DEFAULTS[name]) for name in changes}
    results = node.set_parameters([Parameter(name, value=value) for name, value in right.items()])
    assert all(result.successful for result in results)
    assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS


def test_a_configured_node_refuses_parameters_it_would_not_act_on(ros: Any) -> None:
    node = ros.add(ChunkExecutorNode, **SETTINGS)
    node.trigger_configure()
    result = node.set_parameters([Parameter("control_rate", value=20.0)])[0]
    assert not result.successful
    assert "clean it up first" in result.reason
    node.trigger_cleanup()
    assert node.set_parameters([Parameter("control_rate", value=20)])[0].successful
    assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS


def test_limits_of_a_robot_description_apply(ros: Any) -> None:
    urdf = (
        '<robot><joint name="pan" type="revolute"><limit lower="-0.2" upper="0.2" velocity="9"/></joint>'
        '<joint name="lift" type="revolute"><limit lower="-9" upper="9" velocity="9"/></joint></robot>'
    )
    arm = Arm(ros, mode="lagged", robot_description=urdf)
    arm.chunk([0.5] * 9)
    state = arm.step(9)
    assert list(arm.commands[-1].points[0].positions) == pytest.approx([0.2, 0.5])
    assert state.position_limited > 0


URDF = (
    '<robot><joint name="pan" type="revolute"><limit lower="-9" upper="{upper}" velocity="9"/></joint>'
    '<joint name="lift" type="revolute"><limit lower="-9" upper="9" velocity="9"/></joint></robot>'
)


def test_a_robot_description_from_the_topic_is_waited_for(
    ros: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    arm = Arm(ros, mode="lagged", robot_description="topic")
    arm.chunk([0.5] * 30)
    state = arm.step()
    assert (state.state, arm.commands) == (ExecutorState.HOLDING, [])
    assert "no robot description has been received" in state.reason
    descriptions = ros.publisher(String, "robot_description", qos.LATCHED)
    descriptions.publish(String(data="<robot/>"))
    arm.settle_on(lambda: "no movable joints" in arm.last_state().reason, "the refusal")
    descriptions.publish(String(data=URDF.format(upper=0.2)))
    arm.settle_on(lambda: arm.last_state().state == ExecutorState.WAITING, "the description")
    arm.chunk([0.5] * 30)
    arm.step(9)
    assert list(arm.commands[-1].points[0].positions) == pytest.approx([0.2, 0.5])
    descriptions.publish(String(data=URDF.format(upper=0.9)))
    arm.step(3)
    assert positions(arm.commands)[-1] == pytest.approx(0.2)
    assert "the robot description has changed" in capfd.readouterr().err
