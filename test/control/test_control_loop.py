"""The control loop: what is commanded when, and when nothing is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_simd_ros.control.blending import Replace
from vla_simd_ros.control.chunk import ChunkRejected, RawChunk, RejectReason
from vla_simd_ros.control.control_loop import (
    ActionKind,
    Activity,
    ControlLoop,
    LoopConfig,
    Starvation,
    Tick,
)
from vla_simd_ros.control.limits import JointLimits
from vla_simd_ros.control.timeline import Mode

MS = 1_000_000
PERIOD = 100 * MS
START = 1_000_000 * MS
JOINTS = ("pan", "lift")
LIMITS = JointLimits(np.full(2, -2.0), np.full(2, 2.0), np.full(2, 5.0), np.full(2, 50.0))
CONFIG = LoopConfig(
    joints=JOINTS,
    kind=ActionKind.POSITION,
    limits=LIMITS,
    period_ns=PERIOD,
    mode=Mode.LAGGED,
    blending=Replace(),
    starvation=Starvation.HOLD,
    decay_ns=200 * MS,
    starvation_timeout_ns=500 * MS,
    joint_timeout_ns=350 * MS,
    policy_timeout_ns=3_000 * MS,
    future_tolerance_ns=20 * MS,
    max_age_ns=10_000 * MS,
    start_tolerance=0.1,
)


class Bench:
    """A loop with a clock, fed with joint states at every step unless told otherwise."""

    def __init__(
        self, config: LoopConfig = CONFIG, measured: tuple[float, float] | None = (0.5, -0.5)
    ) -> None:
        self.loop = ControlLoop(config)
        self.loop.start_epoch(1)
        self.now = START
        self.sequence = 0
        self.measured = measured

    def send(self, rows: list[float] | np.ndarray, **changes: object) -> None:
        self.sequence += 1
        values = np.repeat(np.asarray(rows, dtype=np.float64)[:, None], 2, axis=1)
        raw = RawChunk(
            self.now - 50 * MS, self.sequence, 1, JOINTS, 0.1, len(values), len(values), values, 40.0
        )
        self.loop.chunk(replace(raw, **changes), self.now)  # type: ignore[arg-type]

    def tick(self) -> Tick:
        if self.measured is not None:
            self.loop.joint_state(np.array(self.measured), self.now)
        tick = self.loop.tick(self.now)
        self.now += PERIOD
        assert tick is not None
        return tick

    def ticks(self, count: int) -> list[Tick]:
        return [self.tick() for _ in range(count)]


def test_nothing_is_commanded_without_a_joint_state() -> None:
    bench = Bench(measured=None)
    bench.send([0.5] * 9)
    tick = bench.tick()
    assert (tick.activity, tick.command) == (Activity.WAITING, None)
    assert "no joint state" in tick.reason


def test_nothing_is_commanded_before_the_first_chunk() -> None:
    tick = Bench().tick()
    assert (tick.activity, tick.command) == (Activity.WAITING, None)
    assert "no chunk of epoch 1" in tick.reason


def test_without_an_epoch_the_reason_says_so() -> None:
    bench = Bench()
    bench.loop = ControlLoop(CONFIG)
    assert bench.tick().reason == "no epoch has been announced"


def test_the_first_command_starts_from_the_measured_position() -> None:
    bench = Bench()
    bench.send([2.0] * 9)
    first, second = bench.ticks(2)
    assert first.activity is Activity.EXECUTING
    assert first.command == pytest.approx([0.5 + 0.5, -0.5 + 0.5])
    assert second.command is not None and (second.command > first.command).all()  # type: ignore[operator]


def test_rows_are_commanded_one_per_step() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1, 0.2, 0.3])
    ticks = bench.ticks(3)
    assert [tick.command[0] for tick in ticks] == pytest.approx([0.1, 0.2, 0.3])  # type: ignore[index]
    assert [tick.step.row for tick in ticks] == [0, 1, 2]  # type: ignore[union-attr]
    assert not any(bench.loop.limited.values())


def test_starvation_holds_then_stops_commanding_and_a_chunk_restarts_from_the_measured_position() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1, 0.2])
    bench.ticks(2)
    starved = bench.ticks(5)
    assert {tick.activity for tick in starved} == {Activity.STARVED}
    assert starved[-1].command == pytest.approx(starved[-2].command)
    stopped = bench.tick()
    assert (stopped.activity, stopped.command) == (Activity.STOPPED, None)
    assert "starved for 0.50 s" in stopped.reason
    bench.measured = (-1.0, -1.0)
    bench.send([-0.9] * 3)
    restarted = bench.tick()
    assert restarted.activity is Activity.EXECUTING
    assert restarted.command == pytest.approx([-0.9, -0.9])


def test_starvation_brakes_within_the_limits() -> None:
    slow = replace(LIMITS, acceleration=np.full(2, 5.0))
    bench = Bench(replace(CONFIG, limits=slow), measured=(0.0, 0.0))
    bench.send([2.0, 2.0, 2.0])
    moving = bench.ticks(3)
    starved = bench.ticks(5)
    positions = [t.command[0] for t in [*moving, *starved]]  # type: ignore[index]
    velocity = np.diff(positions) / 0.1
    assert velocity[1] > 1.0
    assert np.all(np.abs(np.diff(velocity)) <= 0.5 + 1e-9)


@pytest.mark.parametrize("mode", list(Mode))
def test_hold_stops_at_once_and_only_a_release_and_a_new_chunk_restart(mode: Mode) -> None:
    bench = Bench(replace(CONFIG, mode=mode), measured=(0.0, 0.0))
    bench.send([0.1 * i for i in range(20)])
    bench.ticks(3)
    bench.loop.hold(True)
    held = bench.ticks(2)
    bench.send([1.9] * 20)
    held += bench.ticks(3)
    assert {tick.activity for tick in held} == {Activity.HOLDING}
    assert held[1].command == pytest.approx(held[-1].command)
    bench.loop.hold(False)
    released = bench.tick()
    assert released.activity is Activity.WAITING
    assert released.command == pytest.approx(held[-1].command)
    bench.send([0.3] * 20)
    assert bench.tick().activity is Activity.EXECUTING
    assert bench.loop.timeline.starved_steps == 0


def test_a_second_publisher_holds_and_its_chunks_are_rejected() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1] * 9)
    bench.ticks(2)
    bench.loop.publishers(2)
    tick = bench.tick()
    assert tick.activity is Activity.HOLDING
    assert "2 publishers of action chunks, expected one" in tick.reason
    with pytest.raises(ChunkRejected) as caught:
        bench.send([0.1] * 9)
    assert caught.value.reason is RejectReason.SECOND_PUBLISHER
    bench.loop.publishers(1)
    assert bench.tick().activity is Activity.WAITING
    bench.send([0.1] * 9)
    assert bench.tick().activity is Activity.EXECUTING


def test_a_silent_joint_state_holds_until_it_returns() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.01 * i for i in range(30)])
    bench.ticks(2)
    bench.measured = None
    ticks = bench.ticks(4)
    assert [tick.activity for tick in ticks[:3]] == [Activity.EXECUTING] * 3
    assert ticks[3].activity is Activity.HOLDING
    assert "no joint state for 0.40 s, expected one within 0.35 s" in ticks[3].reason
    bench.measured = (0.05, 0.05)
    assert bench.tick().activity is Activity.WAITING


def test_a_silent_policy_holds_although_rows_are_left() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.01 * i for i in range(60)])
    ticks = bench.ticks(32)
    assert ticks[30].activity is Activity.EXECUTING
    assert ticks[31].activity is Activity.HOLDING
    assert "no chunk for 3.10 s" in ticks[31].reason


def test_a_new_epoch_holds_until_its_first_chunk() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1 * i for i in range(9)])
    bench.ticks(3)
    bench.loop.start_epoch(2)
    waiting = bench.ticks(4)
    assert {tick.activity for tick in waiting} == {Activity.WAITING}
    assert waiting[-1].command == pytest.approx(waiting[-2].command)
    with pytest.raises(ChunkRejected):
        bench.send([0.3] * 5)
    bench.send([0.3] * 5, epoch=2)
    assert bench.tick().activity is Activity.EXECUTING


def test_the_same_epoch_announced_again_changes_nothing() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1] * 9)
    bench.loop.start_epoch(1)
    assert bench.tick().activity is Activity.EXECUTING


def test_the_clock_going_backwards_resets_cleanly() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.05] * 30)
    bench.ticks(3)
    bench.now = START // 2
    bench.measured = None
    tick = bench.tick()
    assert tick.activity is Activity.WAITING
    bench.measured = (0.05, 0.05)
    bench.sequence = 0
    bench.send([0.05] * 30)
    assert bench.tick().activity is Activity.EXECUTING


def test_after_a_pause_the_loop_starts_from_the_measured_position() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1] * 9)
    bench.ticks(2)
    bench.loop.pause()
    bench.measured = (1.0, 1.0)
    assert bench.tick().command is None
    bench.send([1.1] * 9)
    assert bench.tick().command == pytest.approx([1.1, 1.1])


def test_a_pause_between_two_steps_does_not_turn_time_back() -> None:
    bench = Bench(measured=(0.0, 0.0))
    start = bench.now
    bench.loop.joint_state(np.zeros(2), start)
    bench.loop.tick(start)
    bench.loop.tick(start + PERIOD * 6 // 10)
    bench.loop.pause()
    assert bench.loop.tick(start + PERIOD * 9 // 10) is None
    assert bench.loop.tick(start + PERIOD * 2) is not None


def test_braking_ends_at_rest() -> None:
    slow = replace(LIMITS, acceleration=np.full(2, 5.0))
    bench = Bench(replace(CONFIG, limits=slow), measured=(0.0, 0.0))
    assert list(bench.loop.braking()) == []
    bench.send([2.0] * 9)
    last = bench.ticks(4)[-1].command
    commands = list(bench.loop.braking())
    assert len(commands) == 4
    assert commands[-1] == pytest.approx(commands[-2])
    assert (commands[0] > last).all()  # type: ignore[operator]


def test_two_calls_in_one_control_step_are_one_command() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1] * 9)
    bench.tick()
    assert bench.loop.tick(bench.now - PERIOD + MS) is None


def test_rejections_are_counted_by_reason() -> None:
    bench = Bench()
    for names in (("pan", "claw"), ("pan", "claw"), ("pan",)):
        with pytest.raises(ChunkRejected):
            bench.send([0.1] * 3, action_names=names)
    assert bench.loop.rejections == {RejectReason.UNKNOWN_JOINT: 2, RejectReason.MISSING_JOINT: 1}
    assert bench.loop.chunks_received == 3


def test_chunks_that_come_too_late_count_in_the_supply() -> None:
    bench = Bench(replace(CONFIG, mode=Mode.TIME_ALIGNED))
    for _ in range(3):
        bench.ticks(7)
        with pytest.raises(ChunkRejected) as caught:
            bench.send([0.5] * 5, stamp_ns=bench.now - 6 * PERIOD)
        assert caught.value.reason is RejectReason.EXPIRED
    supply = bench.loop.supply.report(Mode.TIME_ALIGNED)
    assert supply.delay_median == 6
    assert supply.c1 == -1
    assert supply.c2 == -7


def test_splices_are_measured() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1] * 9)
    bench.tick()
    assert np.isnan(bench.loop.splice_step)
    for value, step, largest in ((0.4, 0.3, 0.3), (0.3, 0.1, 0.3)):
        bench.send([value] * 9)
        bench.tick()
        assert bench.loop.splice_step == pytest.approx(step)
        assert bench.loop.splice_step_max == pytest.approx(largest)
    bench.loop.start_epoch(2)
    assert bench.loop.splice_step_max == pytest.approx(0.3)


VELOCITY = replace(CONFIG, kind=ActionKind.VELOCITY)


def test_velocities_need_no_joint_state_and_starve_to_zero() -> None:
    bench = Bench(VELOCITY, measured=None)
    bench.send([0.4, 0.4])
    assert [t.command[0] for t in bench.ticks(2)] == pytest.approx([0.4, 0.4])  # type: ignore[index]
    assert bench.tick().command == pytest.approx([0.0, 0.0])


def test_velocities_decay_and_end_at_zero() -> None:
    bench = Bench(replace(VELOCITY, starvation=Starvation.DECAY), measured=None)
    bench.send([0.4])
    bench.tick()
    starved = bench.ticks(5)
    ratios = [b.command[0] / a.command[0] for a, b in pairwise(starved)]  # type: ignore[index]
    assert ratios == pytest.approx([np.exp(-0.5)] * 4)
    last = bench.tick()
    assert last.activity is Activity.STARVED
    assert last.command == pytest.approx([0.0, 0.0], abs=1e-12)
    assert bench.tick().activity is Activity.STOPPED


def test_settings_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="'decay' is for velocities"):
        replace(CONFIG, starvation=Starvation.DECAY)
    forward = replace(LIMITS, lower=np.full(2, 0.1))
    with pytest.raises(ValueError, match="velocities must be able to be zero: joint 0 is at 0"):
        replace(VELOCITY, limits=forward)
    with pytest.raises(ValueError, match="limits for 2 joints, expected 3"):
        replace(CONFIG, joints=("a", "b", "c"))


def test_an_emergency_stop_ends_commands_at_once_and_only_its_release_restarts() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.send([0.1 * i for i in range(9)])
    bench.ticks(3)
    bench.loop.emergency_stop(True)
    assert list(bench.loop.braking()) == []
    bench.send([0.5] * 9)
    stopped = bench.ticks(3)
    assert {(tick.activity, tick.command is None) for tick in stopped} == {(Activity.EMERGENCY, True)}
    assert "until it is released" in stopped[0].reason
    bench.loop.start_epoch(2)
    bench.loop.pause()
    bench.loop.hold(False)
    bench.loop.clock_jumped()
    bench.send([0.5] * 9, epoch=2)
    assert bench.tick().activity is Activity.EMERGENCY
    bench.loop.emergency_stop(False)
    tick = bench.tick()
    assert (tick.activity, tick.command) == (Activity.WAITING, None)
    bench.measured = (0.3, 0.3)
    bench.send([0.3] * 9, epoch=2)
    assert bench.tick().command == pytest.approx([0.3, 0.3])


def test_a_hold_from_before_an_emergency_stop_stays_after_its_release() -> None:
    bench = Bench()
    bench.loop.hold(True)
    bench.loop.emergency_stop(True)
    assert bench.tick().activity is Activity.EMERGENCY
    bench.loop.emergency_stop(False)
    assert bench.tick().activity is Activity.HOLDING


def test_motion_does_not_start_from_outside_the_limits() -> None:
    bench = Bench(measured=(0.0, 2.2))
    bench.send([0.1] * 9)
    tick = bench.tick()
    assert (tick.activity, tick.command) == (Activity.HOLDING, None)
    assert tick.reason.startswith("joint 1 is at 2.2, outside its limits of -2 to 2 by more than 0.1")
    bench.measured = (0.0, 2.05)
    bench.send([1.9] * 9)
    tick = bench.tick()
    assert tick.activity is Activity.EXECUTING
    assert tick.command is not None and tick.command[1] <= 2.0
    bench.measured = (0.0, 2.2)
    assert bench.tick().activity is Activity.EXECUTING, "only the start is measured"


def test_nothing_is_commanded_while_unready_and_other_limits_apply_then() -> None:
    bench = Bench(measured=(0.0, 0.0))
    bench.loop.unready("the description is missing")
    bench.send([1.0] * 9)
    tick = bench.tick()
    assert (tick.activity, tick.reason, tick.command) == (
        Activity.HOLDING,
        "the description is missing",
        None,
    )
    bench.loop.limit(replace(LIMITS, upper=np.full(2, 0.2)))
    bench.loop.unready("")
    bench.send([1.0] * 9)
    assert max(tick.command[0] for tick in bench.ticks(5)) == pytest.approx(0.2)  # type: ignore[index]


def test_the_age_of_joint_states_counts_from_their_stamp() -> None:
    bench = Bench(measured=None)
    bench.loop.joint_state(np.zeros(2), bench.now - 400 * MS)
    assert "no joint state for 0.40 s" in bench.tick().reason


def test_the_chunk_accepted_last_is_told_with_its_delay() -> None:
    bench = Bench()
    assert (bench.loop.arrival.sequence, bench.loop.arrival.delay_ns) == (0, 0)
    bench.send([0.5] * 9)
    with pytest.raises(ChunkRejected):
        bench.send([0.5] * 9, epoch=0)
    assert (bench.loop.arrival.sequence, bench.loop.arrival.delay_ns) == (1, 50 * MS)


WAYPOINT = replace(CONFIG, kind=ActionKind.WAYPOINT)


def test_waypoints_need_no_joint_state_and_are_not_slowed() -> None:
    bench = Bench(WAYPOINT, measured=None)
    assert bench.loop.ahead() is None
    bench.send([1.5, -1.5, 9.0])
    assert [tick.command[0] for tick in bench.ticks(2)] == [1.5, -1.5]  # type: ignore[index]
    ahead = bench.loop.ahead()
    assert ahead is not None
    assert ahead.rows[:, 0].tolist() == [-1.5, 2.0], "the row in force and what follows, within the limits"
    assert np.diff(ahead.times_ns).tolist() == [PERIOD]
    assert ahead.times_ns[0] == bench.now - PERIOD
    assert bench.loop.limited == {"position": 0, "velocity": 0, "acceleration": 0}
    starved = bench.ticks(3)[1:]
    assert {tick.activity for tick in starved} == {Activity.STARVED}
    assert starved[-1].command == pytest.approx([2.0, 2.0])
    assert bench.loop.ahead() is None


def test_a_moving_vehicle_is_told_once_to_stop() -> None:
    bench = Bench(WAYPOINT, measured=None)
    assert list(bench.loop.braking()) == []
    bench.send([1.5] * 9)
    bench.tick()
    assert len(list(bench.loop.braking())) == 1


events = st.lists(
    st.one_of(
        st.tuples(st.just("chunk"), st.lists(st.floats(-50, 50), min_size=1, max_size=8)),
        st.tuples(st.just("hold"), st.booleans()),
        st.tuples(st.just("publishers"), st.integers(0, 2)),
        st.tuples(st.just("silence"), st.booleans()),
        st.tuples(st.just("epoch"), st.integers(1, 4)),
        st.tuples(st.just("ticks"), st.integers(1, 12)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(events)
def test_whatever_happens_commands_obey_the_limits(history: list[tuple[str, object]]) -> None:
    bench = Bench(measured=(0.0, 0.0))
    commands: list[np.ndarray] = []
    for name, value in history:
        if name == "chunk":
            try:
                bench.send(value, epoch=bench.loop.timeline.epoch)  # type: ignore[arg-type]
            except ChunkRejected as rejected:
                assert rejected.reason is RejectReason.SECOND_PUBLISHER
        elif name == "hold":
            bench.loop.hold(bool(value))
        elif name == "publishers":
            bench.loop.publishers(int(value))  # type: ignore[call-overload]
        elif name == "silence":
            bench.measured = None if value else (0.0, 0.0)
        elif name == "epoch":
            bench.loop.start_epoch(int(value))  # type: ignore[call-overload]
        else:
            for tick in bench.ticks(int(value)):  # type: ignore[call-overload]
                if tick.command is None:
                    assert tick.activity in (Activity.WAITING, Activity.HOLDING, Activity.STOPPED)
                    commands = []
                    continue
                commands.append(tick.command)
                check_limits(commands[-3:])


def check_limits(recent: list[np.ndarray]) -> None:
    last = recent[-1]
    assert (np.abs(last) <= 2.0).all()
    velocity = np.diff(np.array(recent), axis=0) / 0.1
    assert (np.abs(velocity) <= 5.0 + 1e-9).all()
    assert (np.abs(np.diff(velocity, axis=0)) <= 5.0 + 1e-8).all()


def test_rows_are_committed_as_far_as_the_measured_delay() -> None:
    bench = Bench(replace(CONFIG, mode=Mode.TIME_ALIGNED))
    assert bench.loop.committed(bench.now) is None, "no delay has been measured"
    # Two chunks, the slower one 250 ms old: rows 0 and 1 of it are stale, then one row per step.
    bench.send(np.arange(9) / 10)
    bench.send(np.arange(9) / 10, stamp_ns=bench.now - 50 * MS)
    assert bench.loop.committed(bench.now) is None, "nothing is executed yet"
    bench.tick()
    bench.now += 150 * MS
    bench.send(np.arange(9) / 10, stamp_ns=bench.now - 250 * MS)
    bench.now -= 150 * MS
    bench.tick()
    last = bench.now - PERIOD
    prefix = bench.loop.committed(last)
    assert prefix is not None
    # Due within 250 ms after the last control step: two steps.
    assert len(prefix.rows) - prefix.executed == 2
    assert [tick.step.target[0] for tick in bench.ticks(2)] == prefix.rows[-2:, 0].tolist()  # type: ignore


def test_nothing_is_committed_in_lagged_execution() -> None:
    bench = Bench()
    bench.send(np.arange(9) / 10)
    bench.tick()
    assert bench.loop.committed(bench.now) is None
