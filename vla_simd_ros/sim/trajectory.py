"""What the arm was told to do: a joint trajectory, checked, and its set point at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import JOINT_NAMES

Array = npt.NDArray[np.float64]


class CommandError(ValueError):
    """A command that the arm cannot follow; the message names what is wrong with it."""


@dataclass(frozen=True)
class Trajectory:
    """Positions [n, 6] in `JOINT_NAMES` order, to be reached `times` [n] seconds after the start."""

    times: Array
    positions: Array


def parse_trajectory(
    names: Sequence[str], positions: Sequence[Sequence[float]], times: Sequence[float]
) -> Trajectory:
    """Checks a command and puts its joints in order.

    names: joints in the command's order
    positions: radians, one row for each point, one value for each name
    times: seconds from the start, one for each point

    Raises CommandError for an unknown, missing or repeated joint, no points, a row of the wrong width, a
    value that is not finite, or times that are negative or do not increase.
    """
    order = _joint_order(names)
    if not positions:
        raise CommandError("joint trajectory: got no points, expected at least one")
    for number, row in enumerate(positions):
        if len(row) != len(names):
            raise CommandError(f"point {number}: got {len(row)} positions, expected {len(names)}")
    values = np.array(positions, dtype=np.float64)
    if not np.isfinite(values).all():
        number, column = np.argwhere(~np.isfinite(values))[0]
        value = values[number, column]
        raise CommandError(f"point {number}, joint '{names[column]}': got {value}, expected a number")
    seconds = np.array(times, dtype=np.float64)
    if seconds[0] < 0.0 or (np.diff(seconds) <= 0.0).any():
        raise CommandError(f"time_from_start: got {seconds.tolist()} s, expected zero or more and increasing")
    return Trajectory(seconds, values[:, order])


def _joint_order(names: Sequence[str]) -> list[int]:
    """Where each of `JOINT_NAMES` stands in `names`."""
    for name in names:
        if name not in JOINT_NAMES:
            raise CommandError(f"joint '{name}': unknown, expected {', '.join(JOINT_NAMES)}")
        if list(names).count(name) > 1:
            raise CommandError(f"joint '{name}': got it {list(names).count(name)} times, expected once")
    missing = [name for name in JOINT_NAMES if name not in names]
    if missing:
        raise CommandError(f"joint trajectory: got no position for {', '.join(missing)}, expected all joints")
    return [list(names).index(name) for name in JOINT_NAMES]


class CommandFollower:
    """The set point over time. Times are seconds of one clock that the caller chooses."""

    def __init__(self, start: Array, timeout: float) -> None:
        """start: [6] radians, the set point until a trajectory comes; timeout: see `sample`."""
        self._set_point = np.array(start, dtype=np.float64)
        self._timeout = timeout
        self._received = 0.0
        self._times = np.zeros(0)
        self._positions = np.zeros((0, len(JOINT_NAMES)))

    @property
    def following(self) -> bool:
        """Whether there is a trajectory that moves the set point."""
        return self._times.size > 0

    def accept(self, trajectory: Trajectory, received: float, start_time: float) -> None:
        """Follows `trajectory`, which starts at `start_time`, from where the set point is now.

        Points whose time has passed are skipped; when all have, the arm goes to the last one at once.
        """
        present = self.sample(received)
        times = start_time + trajectory.times
        ahead = times > received
        if not ahead.any():
            times, ahead = np.full(times.shape, received), np.arange(times.size) == times.size - 1
        self._received = received
        self._times = np.concatenate([[received], times[ahead]])
        self._positions = np.vstack([present, trajectory.positions[ahead]])

    def hold(self) -> None:
        """Drops the trajectory; the set point stays where it is."""
        self._times = np.zeros(0)

    def timed_out(self, now: float) -> bool:
        """Whether the trajectory's command is older than the timeout (never, for a timeout of zero)."""
        return self.following and 0.0 < self._timeout < now - self._received

    def sample(self, now: float) -> Array:
        """The set point [6] at `now`: on the straight line between points, the last one after the end.

        A trajectory older than the timeout, counted from its receipt, is dropped; the set point then holds.
        """
        if self.timed_out(now):
            self.hold()
        if self.following:
            columns = self._positions.T
            self._set_point = np.array([np.interp(now, self._times, column) for column in columns])
        return np.array(self._set_point)
