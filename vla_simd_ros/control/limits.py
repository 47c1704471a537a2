"""Position, velocity and acceleration limits of each joint, applied to every command.

The limiter keeps the last command and its velocity. Every command it returns can be followed by a full
stop inside the position limits at the allowed deceleration, so a command is never in a corner that the
next one cannot leave within the limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class JointLimits:
    """Limits per joint, each float64 ``[joints]``: radians (or metres), per second, per second squared.

    Position limits may be infinite (a continuous joint). Velocity and acceleration limits are positive and
    finite. ``names`` are the joints', for the errors; without them these give indices.

    Raises:
        ValueError: names the limit, the joint and its value.
    """

    lower: Vector
    upper: Vector
    velocity: Vector
    acceleration: Vector
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.lower, self.upper, self.velocity, self.acceleration)}
        if len(shapes) != 1:
            raise ValueError(f"limits of {sorted(shapes)} joints, expected the same number in each")
        for name, array in (("velocity", self.velocity), ("acceleration", self.acceleration)):
            bad = ~(np.isfinite(array) & (array > 0))
            if bad.any():
                index = int(np.argmax(bad))
                raise ValueError(
                    f"{name} limit of joint {self._name(index)} is {array[index]}, expected a positive number"
                )
        bad = ~(self.lower < self.upper)
        if bad.any():
            index = int(np.argmax(bad))
            raise ValueError(
                f"position limits of joint {self._name(index)} are {self.lower[index]} to "
                f"{self.upper[index]}, expected lower < upper"
            )

    def outside(self, positions: Vector, tolerance: float) -> str | None:
        """The first joint that lies outside its position limits by more than the tolerance, or None."""
        bad = (positions < self.lower - tolerance) | (positions > self.upper + tolerance)
        if not bad.any():
            return None
        index = int(np.argmax(bad))
        return (
            f"joint {self._name(index)} is at {positions[index]:.4g}, outside its limits of "
            f"{self.lower[index]:.4g} to {self.upper[index]:.4g} by more than {tolerance:g}"
        )

    def _name(self, index: int) -> str:
        return f"'{self.names[index]}'" if self.names else str(index)


@dataclass(frozen=True)
class Limited:
    """A bounded command, and which limits changed it."""

    command: Vector
    position: bool
    velocity: bool
    acceleration: bool


class Limiter:
    """Bounds a sequence of commands, one per control step.

    Args:
        limits: the limits of each joint.
        period_s: the control period in seconds.
    """

    def __init__(self, limits: JointLimits, period_s: float) -> None:
        self._limits = limits
        self._dt = period_s
        self._delta = limits.acceleration * period_s
        self._command: Vector | None = None
        self._velocity: Vector = np.zeros_like(limits.velocity)
        self._target: Vector = np.zeros_like(limits.velocity)

    @property
    def command(self) -> Vector | None:
        """The last command, or None before :meth:`start`."""
        if self._command is None:
            return None
        command: Vector = self._command.copy()
        return command

    @property
    def velocity(self) -> Vector:
        """Velocity of the last command, per second."""
        velocity: Vector = self._velocity.copy()
        return velocity

    @property
    def at_rest(self) -> bool:
        """Whether the last command repeated the one before it."""
        return not self._velocity.any()

    def start(self, positions: Vector) -> None:
        """Take the measured positions as the last command, at rest; those outside the limits as the limit."""
        self._command = np.clip(positions.astype(np.float64), self._limits.lower, self._limits.upper)
        self._target = self._command.copy()
        self._velocity = np.zeros_like(self._command)

    def forget(self) -> None:
        """Drop the last command: :meth:`start` must come before the next one."""
        self._command = None

    def step(self, target: Vector) -> Limited:
        """The command for this control step: ``target`` where the limits allow it, else towards it.

        A target sequence that respects the limits passes unchanged. After one that does not, the command
        catches up at the limits and arrives with the target's own velocity instead of overshooting it.

        Args:
            target: float64 ``[joints]``.

        Raises:
            ValueError: the target is not finite.
        """
        if not np.isfinite(target).all():
            raise ValueError(f"target {target} is not finite")
        last = self._started()
        inside = np.clip(target, self._limits.lower, self._limits.upper)
        follow = (inside - self._target) / self._dt
        wanted = follow + self._approach(self._target - last)
        self._target = inside
        slow = np.clip(wanted, -self._limits.velocity, self._limits.velocity)
        velocity = np.clip(slow, self._velocity - self._delta, self._velocity + self._delta)
        below, above = last - self._limits.lower, self._limits.upper - last
        stoppable = np.clip(velocity, -self._approach(below), self._approach(above))
        self._move(stoppable)
        tolerance = 1e-9 * (1.0 + np.abs(self._limits.velocity))
        return Limited(
            command=self._started().copy(),
            position=bool((inside != target).any() or (np.abs(stoppable - velocity) > tolerance).any()),
            velocity=bool((np.abs(slow - wanted) > tolerance).any()),
            acceleration=bool((np.abs(velocity - slow) > tolerance).any()),
        )

    def brake(self) -> Vector:
        """The command for this control step on the way to a stop, at the allowed deceleration."""
        velocity = np.sign(self._velocity) * np.maximum(np.abs(self._velocity) - self._delta, 0.0)
        self._move(velocity)
        self._target = self._started().copy()
        command: Vector = self._started().copy()
        return command

    def _started(self) -> Vector:
        if self._command is None:
            raise RuntimeError("the limiter has no last command: call start() with the measured positions")
        command: Vector = self._command
        return command

    def _move(self, velocity: Vector) -> None:
        moved = self._started() + velocity * self._dt
        # The clip removes rounding of the last bit only; velocity is already chosen to stay inside.
        self._command = np.clip(moved, self._limits.lower, self._limits.upper)
        self._velocity = velocity

    def _approach(self, gap: Vector) -> Vector:
        """Largest velocity towards something ``gap`` away from which a stop there is still possible.

        With n further steps of braking after this one, the way is dt * ((n + 1) v - delta n (n + 1) / 2);
        n is the largest number of steps for which that way still fits into the gap.
        """
        distance = np.abs(gap)
        finite = np.where(np.isfinite(distance), distance, 0.0)
        steps = np.floor((np.sqrt(1.0 + 8.0 * finite / (self._dt * self._delta)) - 1.0) / 2.0)
        speed = (finite / self._dt + self._delta * steps * (steps + 1.0) / 2.0) / (steps + 1.0)
        return np.sign(gap) * np.where(np.isfinite(distance), speed, np.inf)


class Bounds:
    """Position limits alone, with the interface of `Limiter`: for actions that are no motion of joints.

    Args:
        limits: of which the position limits count.
    """

    def __init__(self, limits: JointLimits) -> None:
        self._limits = limits
        self._command: Vector | None = None
        self.at_rest = True
        """Whether the last command repeated the one before it."""

    @property
    def command(self) -> Vector | None:
        """The last command, or None before the first one."""
        return self._command

    def start(self, positions: Vector) -> None:
        """Take the positions as the last command; those outside the limits as the limit."""
        self._command = self.bounded(positions)
        self.at_rest = True

    def forget(self) -> None:
        """Drop the last command."""
        self._command = None

    def bounded(self, targets: Vector) -> Vector:
        """Targets, their last axis the joints, within the limits."""
        return np.clip(targets, self._limits.lower, self._limits.upper)

    def step(self, target: Vector) -> Limited:
        """The command for this control step: the target, within the limits."""
        command = self.bounded(target)
        self._command = command
        self.at_rest = False
        changed = bool((command != target).any())
        return Limited(command=command, position=changed, velocity=False, acceleration=False)

    def brake(self) -> Vector:
        """The last command again."""
        if self._command is None:
            raise RuntimeError("there is no last command to stay at")
        self.at_rest = True
        return self._command
