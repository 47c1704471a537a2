"""The executed rows of a recording made again: its chunks through the control loop, under its own clock.

The control steps lie on the grid of the first recorded command; what was recorded up to a step comes before
it. Live, the executor saw each message at another moment than the recorder, so a row can be off by a step
there; with simulated time there is no such difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.chunk import ChunkRejected, RawChunk
from vla_simd_ros.control.control_loop import ControlLoop, LoopConfig, Tick
from vla_simd_ros.control.joint_buffer import JointStateError, select_joints
from vla_simd_ros.control.timeline import StepKind
from vla_simd_ros.recording.bag import Bag, BagError, Recorded
from vla_simd_ros.recording.run import command_values, nanoseconds, state_name, topics


@dataclass(frozen=True)
class CommandComparison:
    """Recorded and replayed commands and rows.

    Attributes:
        recorded: commands in the recording.
        same: those that the replay gives at the same control step, bit for bit.
        difference: the largest difference of a value at the same step.
        reports: executor states of the recording that name an executed row.
        same_rows: those whose row and chunk the replay executes at the same step.
    """

    recorded: int
    same: int
    difference: float
    reports: int
    same_rows: int


def replay_commands(
    bag: Bag, config: LoopConfig, rows: Mapping[int, npt.NDArray[np.float32]]
) -> CommandComparison:
    """Run the control loop on a recording.

    Args:
        bag: the recording.
        config: settings of the control loop.
        rows: rows by sequence number, to be executed in place of those recorded.

    Raises:
        BagError: the recording lacks chunks, epochs or commands.
    """
    present = topics(bag)
    missing = [role for role in ("chunk", "epoch", "command") if role not in present]
    if missing:
        raise BagError(f"{bag.path}: executed rows need {', '.join(missing)} in the recording")
    roles = {present[role]: role for role in ("chunk", "epoch", "command", "joint_states", "state")
             if role in present}  # fmt: skip
    events = list(bag.messages(roles))
    commands = [each for each in events if roles[each.topic] == "command"]
    reports = [each for each in events if roles[each.topic] == "state"]
    replay = _Replay(config, rows)
    ticks = replay.run([(roles[each.topic], each) for each in events], commands[0].time_ns)
    return _compare(commands, reports, ticks, config)


class _Replay:
    """Feeds a control loop."""

    def __init__(self, config: LoopConfig, rows: Mapping[int, npt.NDArray[np.float32]]) -> None:
        self._config = config
        self._rows = rows
        self._loop = ControlLoop(config)

    def run(self, events: Sequence[tuple[str, Recorded]], first_ns: int) -> dict[int, Tick]:
        """The outcome of each control step, by its time."""
        ticks: dict[int, Tick] = {}
        next_ns = first_ns
        for role, recorded in events:
            while next_ns < recorded.time_ns:
                self._step(next_ns, ticks)
                next_ns += self._config.period_ns
            self._take(role, recorded)
        self._step(next_ns, ticks)
        return ticks

    def _step(self, time_ns: int, ticks: dict[int, Tick]) -> None:
        tick = self._loop.tick(time_ns)
        if tick is not None:
            ticks[time_ns] = tick

    def _take(self, role: str, recorded: Recorded) -> None:
        message, now_ns = recorded.message, recorded.time_ns
        if role == "epoch":
            self._loop.start_epoch(int(message.data))
        elif role == "chunk":
            with suppress(ChunkRejected):  # as it was when it was recorded
                self._loop.chunk(self._raw(message), now_ns)
        elif role == "joint_states":
            try:
                positions = select_joints(message.name, message.position, self._config.joints)
            except JointStateError:
                return
            self._loop.joint_state(positions, nanoseconds(message.header.stamp))

    def _raw(self, message: Any) -> RawChunk:
        sequence = int(message.sequence)
        return RawChunk(
            stamp_ns=nanoseconds(message.header.stamp),
            sequence=sequence,
            epoch=int(message.epoch),
            action_names=list(message.action_names),
            step_period=float(message.step_period),
            horizon=int(message.horizon),
            window=int(message.window),
            actions=self._rows.get(sequence, message.actions),
            query_ms=float(message.timing.total_ms),
            frozen=int(message.frozen),
        )


def _compare(
    commands: Sequence[Recorded], reports: Sequence[Recorded], ticks: Mapping[int, Tick], config: LoopConfig
) -> CommandComparison:
    steps = _Steps(ticks, config.period_ns)
    same, difference = 0, 0.0
    for recorded in commands:
        names, values = command_values(recorded.message, config.joints)
        by_name = dict(zip(names, values, strict=False))
        given = np.array([by_name.get(joint, np.nan) for joint in config.joints])
        tick = steps.near(recorded.time_ns)
        if tick is None or tick.command is None:
            continue
        same += int(np.array_equal(given, tick.command))
        difference = max(difference, float(np.max(np.abs(given - tick.command))))
    executing = [each for each in reports if state_name(each.message) == "EXECUTING"]
    same_rows = sum(_executes(steps.near(each.time_ns), each.message) for each in executing)
    return CommandComparison(len(commands), same, difference, len(executing), same_rows)


def _executes(tick: Tick | None, report: Any) -> bool:
    if tick is None or tick.step is None or tick.step.kind not in (StepKind.ROW, StepKind.KEEP):
        return False
    return (tick.step.sequence, tick.step.row) == (report.sequence, report.executed_row)


class _Steps:
    """Control steps by the time nearest to them."""

    def __init__(self, ticks: Mapping[int, Tick], period_ns: int) -> None:
        self._ticks = ticks
        self._first_ns = min(ticks, default=0)
        self._period_ns = period_ns

    def near(self, time_ns: int) -> Tick | None:
        slot = round((time_ns - self._first_ns) / self._period_ns)
        return self._ticks.get(self._first_ns + slot * self._period_ns)
