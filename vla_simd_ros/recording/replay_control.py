"""The executed rows of a recording made again: its chunks through the control loop, step by step.

Every recorded control step tells when it ran and what had come in before it. So the replay gives the control
loop the same things between the same steps, whenever the recorder itself received them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.chunk import ChunkRejected, RawChunk
from vla_simd_ros.control.control_loop import ControlLoop, LoopConfig, Tick
from vla_simd_ros.control.joint_buffer import JointStateError, select_joints
from vla_simd_ros.recording.bag import Bag, BagError
from vla_simd_ros.recording.run import nanoseconds, topics

ChunkKey = tuple[int, int]
"""Epoch and sequence number of a chunk."""


@dataclass(frozen=True)
class CommandComparison:
    """Recorded and replayed control steps.

    Attributes:
        steps: control steps in the recording.
        commands: those that gave a command.
        same: steps that give the same command, bit for bit, or both none.
        difference: the largest difference of a value of two commands.
        same_rows: steps with the same row of the same chunk in force, or both with none.
        missing: accepted chunks that are not recorded.
        whole: the recording has a step before which nothing was in execution; those before it are left out.
    """

    steps: int
    commands: int
    same: int
    difference: float
    same_rows: int
    missing: int
    whole: bool

    @property
    def alike(self) -> bool:
        """Whether every step is the same."""
        return self.same == self.same_rows == self.steps


def replay_commands(
    bag: Bag, config: LoopConfig, rows: Mapping[ChunkKey, npt.NDArray[np.float32]]
) -> CommandComparison:
    """Run the control loop on a recording.

    Args:
        bag: the recording.
        config: settings of the control loop.
        rows: rows by chunk, to be executed in place of those recorded.

    Raises:
        BagError: the recording lacks chunks or control steps.
    """
    present = topics(bag)
    missing = [role for role in ("chunk", "step") if role not in present]
    if missing:
        raise BagError(
            f"{bag.path}: executed rows need {' and '.join(missing)} in the recording: "
            "record action_chunk, control_step and joint_states"
        )
    roles = {present[role]: role for role in ("chunk", "step", "joint_states") if role in present}
    replay = _Replay(config, rows)
    steps = []
    for recorded in bag.messages(roles):
        role, message = roles[recorded.topic], recorded.message
        if role == "step":
            steps.append(message)
        else:
            replay.know(role, message)
    steps.sort(key=lambda step: nanoseconds(step.header.stamp))
    # What was in execution before the recording began is not in it.
    first = next((number for number, step in enumerate(steps) if step.first or _idle(step)), None)
    steps = steps[first or 0 :]
    ticks = [replay.step(step) for step in steps]
    return _compare(steps, ticks, replay.missing, first is not None)


def _idle(step: Any) -> bool:
    """Nothing is in execution at a step, nor commanded: whatever was before it plays no part any more."""
    return step.row < 0 and not len(step.command)


class _Replay:
    """Feeds a control loop with what each recorded step had been given."""

    def __init__(self, config: LoopConfig, rows: Mapping[ChunkKey, npt.NDArray[np.float32]]) -> None:
        self._config = config
        self._rows = rows
        self._loop = ControlLoop(config)
        self._chunks: defaultdict[int, list[RawChunk]] = defaultdict(list)
        self._joints: dict[int, npt.NDArray[np.float64]] = {}
        self._begun = False
        self.missing = 0
        """Accepted chunks that are not recorded."""

    def know(self, role: str, message: Any) -> None:
        """A recorded chunk or joint state, for the step that was given it."""
        if role == "chunk":
            raw = self._raw(message)
            self._chunks[raw.sequence].append(raw)
            return
        with suppress(JointStateError):
            positions = select_joints(message.name, message.position, self._config.joints)
            self._joints[nanoseconds(message.header.stamp)] = positions

    def step(self, recorded: Any) -> Tick | None:
        """Make a recorded control step again."""
        loop = self._loop
        if not self._begun:
            # So that the grid of the control steps is the recorded one.
            loop.grid.next(nanoseconds(recorded.time) - self._config.period_ns)
            self._begun = True
        if recorded.first:
            loop.pause()
        self._hold(recorded)
        joints_ns = nanoseconds(recorded.joint_stamp)
        if joints_ns in self._joints:
            loop.joint_state(self._joints[joints_ns], joints_ns)
        for sequence, arrival in zip(recorded.accepted, recorded.arrivals, strict=True):
            self._accept(int(sequence), nanoseconds(arrival))
        if recorded.epoch:
            loop.start_epoch(int(recorded.epoch))
        loop.publishers(int(recorded.publishers))
        return loop.tick(nanoseconds(recorded.header.stamp))

    def _hold(self, recorded: Any) -> None:
        if recorded.hold_requested != self._loop.hold_requested:
            self._loop.hold(bool(recorded.hold_requested))
        if recorded.emergency_stop != self._loop.emergency:
            self._loop.emergency_stop(bool(recorded.emergency_stop))

    def _accept(self, sequence: int, arrival_ns: int) -> None:
        """A chunk that was accepted: of those of this number, after a restart of the policy, the newest."""
        known = [chunk for chunk in self._chunks[sequence] if chunk.stamp_ns <= arrival_ns]
        known = known or self._chunks[sequence]
        if not known:
            self.missing += 1
            return
        chunk = max(known, key=lambda each: each.stamp_ns)
        # It was accepted, so its epoch had been announced, and there was one publisher.
        self._loop.start_epoch(chunk.epoch)
        self._loop.publishers(1)
        with suppress(ChunkRejected):  # then the steps that follow are different
            self._loop.chunk(chunk, arrival_ns)

    def _raw(self, message: Any) -> RawChunk:
        sequence, epoch = int(message.sequence), int(message.epoch)
        return RawChunk(
            stamp_ns=nanoseconds(message.header.stamp),
            sequence=sequence,
            epoch=epoch,
            action_names=list(message.action_names),
            step_period=float(message.step_period),
            horizon=int(message.horizon),
            window=int(message.window),
            actions=self._rows.get((epoch, sequence), message.actions),
            query_ms=float(message.timing.total_ms),
            frozen=int(message.frozen),
        )


def _compare(
    steps: Sequence[Any], ticks: Sequence[Tick | None], missing: int, whole: bool
) -> CommandComparison:
    given = [np.asarray(step.command, np.float64) for step in steps]
    pairs = list(zip(given, map(_command, ticks), strict=True))
    differences = [np.max(np.abs(old - new)) for old, new in pairs if len(old) and len(new)]
    rows = [((step.sequence, step.row), _row(tick)) for step, tick in zip(steps, ticks, strict=True)]
    return CommandComparison(
        steps=len(steps),
        commands=sum(len(each) > 0 for each in given),
        same=sum(np.array_equal(old, new) for old, new in pairs),
        difference=float(max(differences, default=0.0)),
        same_rows=sum(old == new for old, new in rows),
        missing=missing,
        whole=whole,
    )


def _command(tick: Tick | None) -> npt.NDArray[np.float64]:
    return np.zeros(0) if tick is None or tick.command is None else tick.command


def _row(tick: Tick | None) -> tuple[int, int]:
    row = None if tick is None else tick.row
    return (0, -1) if row is None else (row.sequence, row.row)
