"""Control steps made again from what each of them had been given, whenever the recorder received it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.control.blending import Replace
from vla_simd_ros.control.chunk import RawChunk
from vla_simd_ros.control.control_loop import ActionKind, ControlLoop, LoopConfig, Starvation
from vla_simd_ros.control.limits import JointLimits
from vla_simd_ros.control.timeline import Mode
from vla_simd_ros.recording.bag import Bag, BagError
from vla_simd_ros.recording.replay_control import CommandComparison, replay_commands

MS = 1_000_000
PERIOD = 33 * MS
START = 10**18
JOINTS = ("pan", "lift")
S = 1000 * MS


def config(mode: Mode = Mode.TIME_ALIGNED) -> LoopConfig:
    limits = JointLimits(*(np.full(2, bound) for bound in (-2.0, 2.0, 3.0, 60.0)), JOINTS)
    return LoopConfig(
        joints=JOINTS, kind=ActionKind.POSITION, limits=limits, period_ns=PERIOD, mode=mode,
        blending=Replace(), starvation=Starvation.HOLD, decay_ns=300 * MS, starvation_timeout_ns=2 * S,
        joint_timeout_ns=S, policy_timeout_ns=5 * S, future_tolerance_ns=50 * MS, max_age_ns=10 * S,
        start_tolerance=0.1,
    )  # fmt: skip


def times(*nanoseconds: int) -> list[dict[str, int]]:
    return [{"sec": each // S, "nanosec": each % S} for each in nanoseconds]


@dataclass
class Executor:
    """A control loop in a node's place: it records what the node would, which the recorder receives late.

    The recorder is up to 80 ms behind, by another time for every message: it sees them out of order.
    """

    maker: Any
    generator: np.random.Generator
    loop: ControlLoop
    accepted: list[tuple[int, int]] = field(default_factory=list)
    joint_ns: int = 0
    first: bool = True

    def record(self, topic: str, kind: str, now_ns: int, **values: Any) -> None:
        self.maker.add(topic, kind, now_ns + int(self.generator.integers(0, 80 * MS)), **values)

    def joints(self, now_ns: int) -> None:
        self.joint_ns = now_ns - 2 * MS
        positions = self.generator.uniform(-1.0, 1.0, 2)
        self.record("/joint_states", "sensor_msgs/msg/JointState", now_ns, stamp=self.joint_ns,
                    name=["lift", "pan"], position=positions[::-1].tolist())  # fmt: skip
        self.loop.joint_state(positions, self.joint_ns)

    def chunk(self, now_ns: int, number: int, epoch: int) -> None:
        capture_ns = now_ns - 90 * MS
        actions = self.generator.uniform(-1.0, 1.0, (12, 2)).astype(np.float32)
        fields: dict[str, Any] = {
            "sequence": number, "epoch": epoch, "step_period": 0.033, "horizon": 12, "window": 12,
        }  # fmt: skip
        self.record("/action_chunk", "vla_simd_ros/msg/ActionChunk", now_ns, stamp=capture_ns,
                    action_names=list(JOINTS), actions=actions.reshape(-1), **fields)  # fmt: skip
        raw = RawChunk(stamp_ns=capture_ns, action_names=list(JOINTS), actions=actions.reshape(-1),
                       query_ms=0.0, **fields)  # fmt: skip
        self.loop.start_epoch(epoch)
        self.loop.chunk(raw, now_ns)
        self.accepted.append((number, now_ns))

    def step(self, now_ns: int) -> None:
        tick = self.loop.tick(now_ns)
        assert tick is not None
        row = tick.row
        self.record(
            "/control_step", "vla_simd_ros/msg/ControlStep", now_ns, stamp=now_ns,
            time=times(self.loop.grid.time_ns)[0], first=self.first, epoch=self.loop.timeline.epoch or 0,
            accepted=[number for number, _ in self.accepted],
            arrivals=times(*(time_ns for _, time_ns in self.accepted)),
            joint_stamp=times(self.joint_ns)[0], hold_requested=self.loop.hold_requested,
            emergency_stop=self.loop.emergency, publishers=self.loop.chunk_publishers,
            sequence=row.sequence if row else 0, row=row.row if row else -1,
            command=[] if tick.command is None else tick.command,
        )  # fmt: skip
        self.accepted.clear()
        self.first = False


def run(maker: Any, mode: Mode = Mode.TIME_ALIGNED, seed: int = 0, steps: int = 100) -> Executor:
    """Steps that jitter, joint states every 10 ms, chunks at any time, and what can hold the arm."""
    generator = np.random.default_rng(seed)
    made = Executor(maker, generator, ControlLoop(config(mode)))
    number, epoch, chunk_ns = 0, 7, START + 200 * MS
    for step in range(steps):
        nominal = START + step * PERIOD
        for joints_ns in range(nominal - PERIOD + 5 * MS, nominal, 10 * MS):
            made.joints(joints_ns)
        while chunk_ns < nominal:
            number += 1
            made.chunk(chunk_ns, number, epoch)
            chunk_ns += int(generator.integers(5 * MS, 500 * MS))
        if step == 40:
            epoch = 9
        if step in (55, 61):
            made.loop.hold(step == 55)
        if step in (75, 78):
            made.loop.emergency_stop(step == 75)
        made.step(nominal + int(generator.integers(0, 4 * MS)))
    assert number > 8
    return made


def replayed(maker: Any, folder: Path, mode: Mode = Mode.TIME_ALIGNED, **rows: Any) -> CommandComparison:
    with Bag(maker.write(folder / "bag")) as bag:
        return replay_commands(bag, config(mode), rows.get("rows", {}))


@pytest.mark.parametrize("mode", list(Mode))
def test_every_step_is_the_same_bit_for_bit(bag_maker: Any, tmp_path: Path, mode: Mode) -> None:
    executor = run(bag_maker, mode, seed=3)
    found = replayed(bag_maker, tmp_path, mode)
    assert found.alike and found.whole and not found.missing
    assert (found.steps, found.difference) == (100, 0.0)
    assert 50 < found.commands < 100
    assert executor.loop.timeline.executed_steps > 40 and executor.loop.limited["velocity"] > 10


def test_other_rows_are_seen(bag_maker: Any, tmp_path: Path) -> None:
    run(bag_maker)
    found = replayed(bag_maker, tmp_path, rows={(7, 2): np.zeros((12, 2), np.float32)})
    assert not found.alike and found.same_rows == found.steps and found.difference > 0.0


def test_a_chunk_that_is_not_recorded_is_counted(bag_maker: Any, tmp_path: Path) -> None:
    executor = Executor(bag_maker, np.random.default_rng(0), ControlLoop(config()))
    executor.joints(START - MS)
    executor.accepted.append((5, START - MS))
    executor.step(START)
    executor.chunk(START + MS, 6, 1)
    executor.step(START + PERIOD)
    found = replayed(bag_maker, tmp_path)
    assert (found.missing, found.alike) == (1, True)


def test_a_run_of_which_the_beginning_is_not_recorded(bag_maker: Any, tmp_path: Path) -> None:
    executor = Executor(bag_maker, np.random.default_rng(0), ControlLoop(config()), first=False)
    executor.joints(START - MS)
    executor.chunk(START, 3, 1)
    executor.step(START + MS)
    found = replayed(bag_maker, tmp_path)
    assert not found.whole and found.alike


def test_a_first_step_that_nothing_came_of_need_not_be_recorded(bag_maker: Any, tmp_path: Path) -> None:
    executor = Executor(bag_maker, np.random.default_rng(0), ControlLoop(config()), first=False)
    executor.joints(START - MS)
    executor.step(START)
    executor.chunk(START + 20 * MS, 3, 1)
    executor.step(START + PERIOD)
    found = replayed(bag_maker, tmp_path)
    assert (found.steps, found.whole, found.alike) == (2, True, True)


def test_steps_before_the_first_one_of_a_run_are_not_compared(bag_maker: Any, tmp_path: Path) -> None:
    executor = Executor(bag_maker, np.random.default_rng(0), ControlLoop(config()), first=False)
    executor.joints(START - S)
    executor.chunk(START - S + MS, 1, 1)
    executor.step(START - S + 2 * MS)
    executor.loop.pause()
    executor.first = True
    executor.joints(START - MS)
    executor.chunk(START - MS, 2, 1)
    executor.step(START + 4 * MS)
    found = replayed(bag_maker, tmp_path)
    assert (found.steps, found.commands, found.whole, found.alike) == (1, 1, True, True)


def test_a_recording_without_control_steps_is_refused(bag_maker: Any, tmp_path: Path) -> None:
    executor = Executor(bag_maker, np.random.default_rng(0), ControlLoop(config()))
    executor.joints(START)
    executor.chunk(START + MS, 1, 1)
    with pytest.raises(BagError, match="executed rows need step in the recording: record action_chunk"):
        replayed(bag_maker, tmp_path)
