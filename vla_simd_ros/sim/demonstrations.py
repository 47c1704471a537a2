"""Demonstrations by the scripted expert, from starts and through disturbances that teach how to recover.

What is recorded is what the expert wants at each moment. What the arm is told may differ, when the targets
are pushed; the expert then shows the way back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import JOINT_NAMES, LOWER, UPPER
from vla_simd_ros.sim.expert import Expert
from vla_simd_ros.sim.inverse_kinematics import Unreachable, point_down_at
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.scene import CAMERAS
from vla_simd_ros.sim.tasks import CONTROL_RATE, INSTRUCTIONS, TaskScene, goal_of, random_place

Array = npt.NDArray[np.float64]

PERIOD = 1.0 / CONTROL_RATE
TIME_LIMIT = 8.0
"""Seconds; a demonstration that takes longer has failed."""
_REST = 0.3
"""Seconds of rest at the end: the arm is home and stays there."""

# Of a push of the targets: seconds between two of them (mean) and that one lasts.
_PUSH_EVERY = 1.2
_PUSH_LASTS = (0.10, 0.35)
_PUSHED = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.3])
"""By joint, times the amplitude: a hard push of the jaws would lose the cube each time."""


# Metres by which an attempt that misses is off, and seconds after which it is taken over: between the way
# down and the way up.
_MISSED_BY = (0.012, 0.045)
_MISSED_AT = (0.8, 2.4)


@dataclass(frozen=True)
class Step:
    """One frame: what is seen and measured, and what the expert then wants."""

    pictures: dict[str, npt.NDArray[np.uint8]]
    state: Array
    action: Array


@dataclass(frozen=True)
class Disturbances:
    """What makes demonstrations harder than a solution from home.

    push: radians by which the targets are pushed at most, in every other demonstration
    missed: share of the demonstrations that begin in the middle of a grasp that misses
    """

    push: float = 0.08
    missed: float = 0.3

    def __post_init__(self) -> None:
        if not 0.0 <= self.push <= 1.0:
            raise SimulationError(f"push: got {self.push} rad, expected 0 to 1")
        if not 0.0 <= self.missed <= 1.0:
            raise SimulationError(f"share of missed grasps: got {self.missed}, expected 0 to 1")


def demonstrate(
    scene: TaskScene, instruction: str, generator: np.random.Generator, disturbances: Disturbances
) -> list[Step] | None:
    """The frames of one solution at `CONTROL_RATE`; None when it failed."""
    missed = disturbances.missed
    shares = [*((1.0 - missed) * share for share in _SHARES), missed]
    prepare = (*_STARTS, _astray)[int(generator.choice(len(shares), p=shares))]
    scene.reset(int(generator.integers(2**62)))
    prepare(scene, instruction, generator)
    if instruction in scene.achieved():
        return None
    pushes = _pushes(generator, disturbances.push if generator.random() < 0.5 else 0.0)
    expert = Expert(scene, instruction)
    steps: list[Step] = []
    rest = round(_REST * CONTROL_RATE)
    for offset in pushes:
        state = scene.robot.joint_positions
        pictures = {camera: scene.robot.render(camera).image for camera in CAMERAS}
        action = expert.command()
        steps.append(Step(pictures, state, action))
        rest -= expert.done
        if rest <= 0 or expert.given_up:
            break
        _control(scene, np.clip(action + offset, LOWER, UPPER))
    return steps if rest <= 0 and instruction in scene.achieved() else None


def _control(scene: TaskScene, command: Array) -> None:
    scene.robot.set_command(command)
    scene.robot.step(PERIOD)


def _pushes(generator: np.random.Generator, amplitude: float) -> Array:
    """[n, 6] what is added to the targets, over the whole time limit: rising and falling in half a wave."""
    offsets = np.zeros((round(TIME_LIMIT * CONTROL_RATE), len(JOINT_NAMES)))
    start = round(generator.exponential(_PUSH_EVERY) * CONTROL_RATE)
    while start < len(offsets):
        length = max(1, round(generator.uniform(*_PUSH_LASTS) * CONTROL_RATE))
        wave = np.sin(np.pi * (np.arange(length) + 0.5) / length)[: len(offsets) - start]
        offsets[start : start + length] = np.outer(
            wave, _PUSHED * generator.uniform(-amplitude, amplitude, 6)
        )
        start += length + round(generator.exponential(_PUSH_EVERY) * CONTROL_RATE)
    return offsets


# --- starts -------------------------------------------------------------------------------------------


def _at_home(scene: TaskScene, instruction: str, generator: np.random.Generator) -> None:
    """As the scene is after a reset."""


def _elsewhere(scene: TaskScene, instruction: str, generator: np.random.Generator) -> None:
    """The gripper somewhere above the cubes, open or closed."""
    cubes = scene.robot.snapshot().cubes
    for _ in range(100):
        place = (*random_place(generator), generator.uniform(0.075, 0.10))
        try:
            arm = point_down_at(place, (0.098, 0.010), generator.uniform(0.2, 0.9))
        except Unreachable:
            continue
        arm[3:5] += generator.uniform(-0.15, 0.15, 2)
        scene.robot.place(np.clip(arm, LOWER, UPPER), cubes)
        return


def _midway(scene: TaskScene, instruction: str, generator: np.random.Generator) -> None:
    """On the way to another goal: the instruction has changed."""
    other = INSTRUCTIONS[int(generator.integers(len(INSTRUCTIONS)))]
    _work(scene, other, generator.uniform(0.2, 3.2))


def _astray(scene: TaskScene, instruction: str, generator: np.random.Generator) -> None:
    """In the middle of an attempt that aims beside the cube: it is missed, pushed or badly held."""
    angle, distance = generator.uniform(0.0, 2.0 * np.pi), generator.uniform(*_MISSED_BY)
    error = (distance * np.cos(angle), distance * np.sin(angle), generator.uniform(-0.006, 0.010))
    _work(scene, instruction, generator.uniform(*_MISSED_AT), error)


def _later(scene: TaskScene, instruction: str, generator: np.random.Generator) -> None:
    """After another goal has been reached that leaves this one possible."""
    goal = goal_of(instruction)
    others = [each for each in INSTRUCTIONS if goal_of(each).pad is not goal.pad]
    _work(scene, others[int(generator.integers(len(others)))], TIME_LIMIT)


def _work(scene: TaskScene, instruction: str, seconds: float, error: npt.ArrayLike = (0.0, 0.0, 0.0)) -> None:
    expert = Expert(scene, instruction, error=error)
    for _ in range(round(seconds * CONTROL_RATE)):
        _control(scene, expert.command())
        if expert.done:
            return


_Start = Callable[[TaskScene, str, np.random.Generator], None]
_STARTS: tuple[_Start, ...] = (_at_home, _elsewhere, _midway, _later)
_SHARES = (0.5, 0.2, 0.15, 0.15)
"""How many of the demonstrations, of those that begin with no grasp that misses, start in each way."""
