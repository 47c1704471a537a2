"""A scripted policy that sees the whole state: it picks the named cube up and puts it on the named pad.

Everything it does follows from where the cube and the arm are now and from the stage it is in, and a stage
that has failed leads back to an earlier one. So it recovers from pushes, and shows how.
"""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import HOME, JOINT_NAMES, forward_kinematics
from vla_simd_ros.sim.inverse_kinematics import Unreachable, point_down_at
from vla_simd_ros.sim.scene import CUBES
from vla_simd_ros.sim.tasks import CONTROL_RATE, TaskScene, goal_of

Array = npt.NDArray[np.float64]

# Points between the jaws, x and z in the frame of the gripper (metres): the middle of the open jaws, and
# where the centre of a gripped cube is.
_BETWEEN = (0.088, 0.018)
_GRIPPED = (0.088, 0.003)
_OPEN, _CLOSED = 0.85, 0.15
"""Radians; the jaws meet the faces of a cube at about 0.26."""
_EMPTY = 0.20
"""Radians; jaws closed further than that hold nothing."""

_HOVER = 0.068
"""Metres above the table from which the gripper goes straight down."""
_CARRY = 0.060
"""Metres above the table of a carried cube's centre: it passes over the others."""
_GRASP = 0.017
_RELEASE = 0.018

_SPEED = np.array([1.8, 1.6, 1.6, 1.8, 1.8, 1.9])
"""Radians per second at most, by joint."""
_ACCELERATION = 14.0
"""Radians per second squared at most."""
_PATIENCE = round(1.0 * CONTROL_RATE)
"""Control steps for which a cube may be where the gripper cannot get: it may still be moving."""
_SETTLING = 0.12
"""Seconds: close to a target the distance to it shrinks by 1/e in this time."""


class _Stage(enum.Enum):
    PUT_DOWN = enum.auto()
    APPROACH = enum.auto()
    DESCEND = enum.auto()
    GRASP = enum.auto()
    LIFT = enum.auto()
    CARRY = enum.auto()
    LOWER = enum.auto()
    RELEASE = enum.auto()
    RISE = enum.auto()
    RETURN = enum.auto()


_FETCHING = (_Stage.APPROACH, _Stage.DESCEND, _Stage.GRASP)
_HOLDING = (_Stage.LIFT, _Stage.CARRY, _Stage.LOWER)


class Expert:
    """Solves one instruction in a scene, from wherever the scene is."""

    def __init__(self, scene: TaskScene, instruction: str, *, error: npt.ArrayLike = (0.0, 0.0, 0.0)) -> None:
        """error: metres by which it believes cubes and pads to be elsewhere than they are, x, y and z.

        Raises SimulationError for an unknown instruction.
        """
        self._scene = scene
        self._error: Array = np.asarray(error, dtype=np.float64)
        self._instruction = instruction
        self._goal = goal_of(instruction)
        self._cube = CUBES.index(self._goal.cube)
        self._velocity = np.zeros(len(JOINT_NAMES))
        self._look()
        self._stage = self._first_stage()
        self._beyond_reach = 0
        self.done = False
        self.given_up = ""
        """Why the instruction cannot be followed any more; empty while it can."""

    def command(self) -> Array:
        """[6] radians: the targets of the servos for the next control step."""
        self._look()
        self._stage = self._next_stage()
        self.done = self._stage is _Stage.RETURN and self._near(HOME, 0.03) and self._reached()
        self._watch_reach()
        return self._towards(self._target())

    # --- what is the case -------------------------------------------------------------------------

    def _look(self) -> None:
        """Where the arm is, and the cube: on the table and as seen from where a gripped one would be."""
        world = self._scene.robot.snapshot()
        self._positions = world.positions
        self._moving = world.velocities
        believed = world.cubes[:, :3] + self._error
        self._place: Array = believed[self._cube]
        hand = forward_kinematics(world.positions)["gripper_body"]
        self._grip: Array = (hand @ (_GRIPPED[0], 0.0, _GRIPPED[1], 1.0))[:3]
        self._cubes_in_hand: Array = (believed - self._grip) @ hand[:3, :3]
        self._in_hand: Array = self._cubes_in_hand[self._cube]

    def _held(self) -> int | None:
        """The number of the cube between jaws that are closed on it."""
        distances = np.abs(self._cubes_in_hand).max(axis=1)
        closed = _EMPTY < self._positions[5] < 0.40
        return int(distances.argmin()) if closed and distances.min() < 0.022 else None

    def _holds(self) -> bool:
        """Whether it is this cube."""
        return self._held() == self._cube

    def _watch_reach(self) -> None:
        """Give up a cube that stays where the gripper cannot get."""
        out = self._stage in _FETCHING and not self._within_reach()
        self._beyond_reach = self._beyond_reach + 1 if out else 0
        if self._beyond_reach >= _PATIENCE:
            name, (x, y) = self._goal.cube.name.replace("_", " "), self._place[:2]
            self.given_up = f"the {name} is out of reach at ({x:.3f}, {y:.3f}) m"

    def _within_reach(self) -> bool:
        """Whether the gripper can be above the cube, and around it."""
        x, y = self._place[:2]
        try:
            for height in (_HOVER, _GRASP + self._error[2]):
                point_down_at((x, y, height), _BETWEEN, _OPEN)
        except Unreachable:
            return False
        return True

    def _reached(self) -> bool:
        return self._instruction in self._scene.achieved()

    def _near(self, target: Array, tolerance: float) -> bool:
        """Whether the arm has been told to be, and nearly is, at `target`; whatever its jaws do."""
        told = np.abs(self._scene.robot.command - target)[:5].max() < tolerance
        return bool(told and np.abs(self._positions - target)[:5].max() < 2.0 * tolerance)

    # --- what comes next --------------------------------------------------------------------------

    def _first_stage(self) -> _Stage:
        held = self._held()
        if held is None:
            return _Stage.APPROACH
        return _Stage.LIFT if held == self._cube else _Stage.PUT_DOWN

    def _next_stage(self) -> _Stage:
        stage = self._stage
        if stage is _Stage.PUT_DOWN and self._complete(stage):
            return _Stage.RELEASE
        if stage is _Stage.RISE and self._complete(stage):
            # It may still rock a little on the pad.
            return _Stage.RETURN if self._goal.pad.holds(*self._place[:2]) else _Stage.APPROACH
        if stage in _HOLDING and not self._holds():
            return _Stage.APPROACH
        if stage is _Stage.APPROACH and self._reached():
            return _Stage.RETURN
        if stage is _Stage.DESCEND and self._off_course():
            return _Stage.APPROACH
        if stage is _Stage.GRASP and self._positions[5] < _EMPTY:
            return _Stage.APPROACH
        if stage is _Stage.RETURN and self._near(HOME, 0.03) and not self._reached():
            return _Stage.APPROACH
        return _Stage(stage.value + 1) if self._complete(stage) else stage

    def _off_course(self) -> bool:
        """Whether the cube has moved away from below the gripper while that was still above it."""
        aside = max(abs(self._in_hand[1]), abs(self._in_hand[2] - (_BETWEEN[1] - _GRIPPED[1])))
        return bool(self._grip[2] > 0.045 and aside > 0.020)

    def _complete(self, stage: _Stage) -> bool:
        jaws, speed = self._positions[5], abs(self._moving[5])
        if stage is _Stage.GRASP:
            return bool(jaws < 0.40 and speed < 0.3)
        if stage is _Stage.LIFT:
            return bool(self._grip[2] > 0.75 * _CARRY)
        if stage is _Stage.RELEASE:
            return bool(jaws > 0.60)
        if stage is _Stage.RISE:
            return bool(self._grip[2] > 0.8 * _HOVER)
        if stage is _Stage.RETURN:
            return False
        if stage is _Stage.APPROACH:
            return bool(jaws > 0.65 and self._near(self._target(), 0.05))
        return self._near(self._target(), 0.025)

    # --- where to go ------------------------------------------------------------------------------

    def _target(self) -> Array:
        stage, (x, y) = self._stage, self._place[:2]
        pad_x, pad_y = self._goal.pad.center + self._error[:2]
        grasp, release = _GRASP + self._error[2], _RELEASE + self._error[2]
        if stage is _Stage.APPROACH:
            return self._pose((x, y, _HOVER), _BETWEEN, _OPEN)
        if stage is _Stage.PUT_DOWN:
            return self._pose((self._grip[0], self._grip[1], release), _GRIPPED, _CLOSED)
        if stage is _Stage.DESCEND:
            return self._pose((x, y, grasp), _BETWEEN, _OPEN)
        if stage is _Stage.GRASP:
            return self._stay(_CLOSED)
        if stage is _Stage.LIFT:
            return self._pose((self._grip[0], self._grip[1], _CARRY), _GRIPPED, _CLOSED)
        if stage is _Stage.CARRY:
            return self._pose((pad_x, pad_y, _CARRY), _GRIPPED, _CLOSED)
        if stage is _Stage.LOWER:
            return self._pose((pad_x, pad_y, release), _GRIPPED, _CLOSED)
        if stage is _Stage.RELEASE:
            return self._stay(_OPEN)
        if stage is _Stage.RISE:
            return self._pose((self._grip[0], self._grip[1], _HOVER), _GRIPPED, _OPEN)
        return HOME

    def _stay(self, gripper: float) -> Array:
        return np.append(self._scene.robot.command[:5], gripper)

    def _pose(self, point: tuple[float, float, float], tool: tuple[float, float], gripper: float) -> Array:
        """The arm at `point`, or where it is told to be now when it cannot get there."""
        try:
            return point_down_at(point, tool, gripper)
        except Unreachable:
            return self._stay(gripper)

    def _towards(self, target: Array) -> Array:
        """One control step from the present command, straight in joint space, of bounded acceleration."""
        present = self._scene.robot.command
        period = 1.0 / CONTROL_RATE
        remaining = float(np.max(np.abs(target - present) / _SPEED))
        wanted = (target - present) / max(remaining, _SETTLING)
        change = _ACCELERATION * period
        self._velocity += np.clip(wanted - self._velocity, -change, change)
        return np.asarray(present + self._velocity * period)
