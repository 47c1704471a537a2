"""What the arm is told to do: bring one of the cubes to one of the pads."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import HOME, LINKS
from vla_simd_ros.sim.physics import SimulationError
from vla_simd_ros.sim.robot import SimulatedRobot
from vla_simd_ros.sim.scene import CUBES, PADS, LooseCube, Pad

Array = npt.NDArray[np.float64]

_LOGGER = logging.getLogger(__name__)

CONTROL_RATE = 30.0
"""Commands, and frames of a demonstration, per second."""

# Where cubes start: distance (m) from the shoulder's axis, and angle (rad) about it. The gripper reaches all
# of this area pointing straight down, and none of it is on a pad.
_DISTANCES = (0.150, 0.230)
_ANGLES = (-0.62, 0.62)
_CLEARANCE = 0.070
"""Metres between the centres of two cubes: room for the open jaws around one of them."""
_TURN = 0.25
"""Radians by which a cube is turned at most, from facing the shoulder's axis."""
_ARM_SPREAD = np.array([0.10, 0.06, 0.06, 0.06, 0.06, 0.10])
"""Radians by which the arm starts away from home at most."""

_REST = 0.01
"""Metres per second (of a corner, about): a cube slower than that is at rest."""
_ON_TABLE = 0.004
"""Metres above its height on the table at which a cube still lies there."""


@dataclass(frozen=True)
class Goal:
    """One cube's centre at rest within a pad that holds no other cube."""

    cube: LooseCube
    pad: Pad

    @property
    def instruction(self) -> str:
        return f"put the {self.cube.name.replace('_', ' ')} on the {self.pad.name.replace('_', ' ')}"


GOALS: dict[str, Goal] = {
    goal.instruction: goal for goal in (Goal(cube, pad) for cube, pad in itertools.product(CUBES, PADS))
}
INSTRUCTIONS: tuple[str, ...] = tuple(GOALS)


def goal_of(instruction: str) -> Goal:
    """Raises SimulationError for a sentence that is none of `INSTRUCTIONS`."""
    if instruction not in GOALS:
        raise SimulationError(f"instruction: got '{instruction}', expected one of {', '.join(INSTRUCTIONS)}")
    return GOALS[instruction]


class TaskScene:
    """The world of one episode: a robot, the cubes somewhere before it, and which goals are reached."""

    def __init__(
        self,
        *,
        width: int = 640,
        height: int = 480,
        renderer: str = "auto",
        warn: Callable[[str], None] = _LOGGER.warning,
    ) -> None:
        """As for `SimulatedRobot`, which raises what is raised here."""
        self.robot = SimulatedRobot(width=width, height=height, renderer=renderer, warn=warn)

    def reset(self, seed: int) -> None:
        """Back to time zero, with the cubes and the arm where `seed` puts them."""
        self.robot.reset()
        self.arrange(seed)

    def arrange(self, seed: int) -> None:
        """Puts cubes and arm, at rest, where `seed` puts them; time goes on."""
        generator = np.random.default_rng(seed)
        cubes = _cube_poses(generator)
        self.robot.place(HOME + _ARM_SPREAD * generator.uniform(-1.0, 1.0, HOME.size), cubes)

    def achieved(self) -> frozenset[str]:
        """The instructions whose goals are reached at this moment."""
        world = self.robot.snapshot()
        on_pads = {
            pad.name: [index for index, pose in enumerate(world.cubes) if pad.holds(pose[0], pose[1])]
            for pad in PADS
        }
        return frozenset(
            instruction
            for instruction, goal in GOALS.items()
            if on_pads[goal.pad.name] == [(index := CUBES.index(goal.cube))]
            and world.cubes[index, 2] < goal.cube.half_size + _ON_TABLE
            and _speed(world.cube_velocities[index], goal.cube) < _REST
        )


def _speed(velocity: Array, cube: LooseCube) -> float:
    return float(np.linalg.norm(velocity[:3]) + cube.half_size * np.linalg.norm(velocity[3:]))


def _cube_poses(generator: np.random.Generator) -> Array:
    """[n, 7] of cubes far enough from each other, evenly spread over where they can start."""
    while True:
        places = np.array([random_place(generator) for _ in CUBES])
        gaps = [math.dist(first, second) for first, second in itertools.combinations(places, 2)]
        if min(gaps) >= _CLEARANCE:
            break
    outwards = places - shoulder_axis()
    turns = np.arctan2(outwards[:, 1], outwards[:, 0]) + generator.uniform(-_TURN, _TURN, len(CUBES))
    poses = np.zeros((len(CUBES), 7))
    poses[:, :2] = places
    poses[:, 2] = [cube.half_size for cube in CUBES]
    poses[:, 3] = np.cos(turns / 2.0)
    poses[:, 6] = np.sin(turns / 2.0)
    return poses


def random_place(generator: np.random.Generator) -> Array:
    """[2] somewhere in the area where cubes start, evenly spread, metres."""
    distance = math.sqrt(generator.uniform(_DISTANCES[0] ** 2, _DISTANCES[1] ** 2))
    angle = generator.uniform(*_ANGLES)
    return shoulder_axis() + distance * np.array([math.cos(angle), math.sin(angle)])


def shoulder_axis() -> Array:
    """[2] where the shoulder's vertical axis meets the table, metres."""
    return np.array(LINKS[1].offset[:2])
