"""The arm's and the cubes' motion, by MuJoCo."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import HOME, JOINT_NAMES, LOWER, UPPER
from vla_simd_ros.sim.mjcf import TIMESTEP, build_mjcf
from vla_simd_ros.sim.scene import CUBES

Array = npt.NDArray[np.float64]


class SimulationError(RuntimeError):
    """The simulation cannot run here, or was asked for something impossible."""


@dataclass(frozen=True)
class Snapshot:
    """The world at one instant.

    time: seconds since the simulation's start
    positions, velocities: [6] radians and radians per second, in `JOINT_NAMES` order
    cubes: [n, 7] centre (metres) and orientation (quaternion w, x, y, z) of each of `CUBES`
    cube_velocities: [n, 6] metres per second, then radians per second
    """

    time: float
    positions: Array
    velocities: Array
    cubes: Array
    cube_velocities: Array


def load_mujoco() -> Any:
    """The mujoco module.

    It is imported with its own choice of an OpenGL platform switched off: that choice is made at import
    and fails as a whole where no driver is found, while the physics needs none.

    Raises SimulationError, saying what to install, when the module is missing.
    """
    chosen = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disable"
    try:
        module = importlib.import_module("mujoco")
    except ImportError as error:
        raise SimulationError(
            f"the simulated robot needs MuJoCo 3.2 or later ({error}): pip install 'vla_simd_ros[sim]'"
        ) from error
    finally:
        if chosen is None:
            del os.environ["MUJOCO_GL"]
        else:
            os.environ["MUJOCO_GL"] = chosen
    if not hasattr(module, "MjModel"):
        version = getattr(module, "__version__", "unknown")
        raise SimulationError(f"mujoco: got version {version}, which is empty, expected 'mujoco>=3.2,<4'")
    return module


class Physics:
    """The world's state, moved on by whole time steps. Not thread-safe."""

    def __init__(self, width: int = 640, height: int = 480) -> None:
        """`width` and `height`: the largest picture that a renderer will draw of `model`, in pixels."""
        self._mujoco = load_mujoco()
        self.model = self._mujoco.MjModel.from_xml_string(build_mjcf(width, height))
        self._data = self._mujoco.MjData(self.model)
        joints = [self.model.joint(name) for name in JOINT_NAMES]
        self._positions = np.array([int(joint.qposadr[0]) for joint in joints])
        self._velocities = np.array([int(joint.dofadr[0]) for joint in joints])
        loose = [self.model.joint(cube.name) for cube in CUBES]
        self._cubes = np.add.outer([int(joint.qposadr[0]) for joint in loose], np.arange(7))
        self._cube_velocities = np.add.outer([int(joint.dofadr[0]) for joint in loose], np.arange(6))
        self.reset()

    def reset(self) -> None:
        """Back to the start: time zero, the arm at rest in its home position and told to stay there."""
        self._mujoco.mj_resetData(self.model, self._data)
        self._steps = 0
        self.place(HOME)

    def place(self, positions: npt.ArrayLike) -> None:
        """Puts the arm at rest at `positions`, [6] radians, told to stay there; time is not changed.

        Raises SimulationError as `set_command` does.
        """
        self.set_command(positions)
        self._data.qpos[self._positions] = self._data.ctrl
        self._data.qvel[self._velocities] = 0.0
        self._mujoco.mj_forward(self.model, self._data)

    def place_cubes(self, poses: npt.ArrayLike) -> None:
        """Puts the cubes at rest at `poses` [n, 7], as `Snapshot.cubes` has them; time is not changed.

        Raises SimulationError when the shape is wrong or a value is not finite.
        """
        values = np.asarray(poses, dtype=np.float64)
        if values.shape != self._cubes.shape or not np.isfinite(values).all():
            raise SimulationError(
                f"cubes: got shape {values.shape}, expected {self._cubes.shape} of finite numbers"
            )
        self._data.qpos[self._cubes] = values
        self._data.qvel[self._cube_velocities] = 0.0
        self._mujoco.mj_forward(self.model, self._data)

    @property
    def time(self) -> float:
        """Seconds since the start."""
        return self._steps * TIMESTEP

    @property
    def steps(self) -> int:
        """Time steps since the start."""
        return self._steps

    @property
    def command(self) -> Array:
        """[6] the servos' targets, radians."""
        return np.array(self._data.ctrl)

    def set_command(self, targets: npt.ArrayLike) -> None:
        """Sets the servos' targets, [6] radians; beyond a joint's limits a servo stops at the limit.

        Raises SimulationError when the shape is wrong or a value is not finite; the old targets then stay.
        """
        values = np.asarray(targets, dtype=np.float64)
        if values.shape != (len(JOINT_NAMES),):
            raise SimulationError(f"command: got shape {values.shape}, expected ({len(JOINT_NAMES)},)")
        if not np.isfinite(values).all():
            name = JOINT_NAMES[int(np.argmin(np.isfinite(values)))]
            raise SimulationError(f"command: '{name}' of {values.tolist()} is not finite")
        self._data.ctrl[:] = np.clip(values, LOWER, UPPER)

    def advance(self, steps: int) -> None:
        """Moves the world on by `steps` time steps of `TIMESTEP` seconds."""
        if steps < 0:
            raise SimulationError(f"time steps: got {steps}, expected zero or more")
        if steps:
            self._mujoco.mj_step(self.model, self._data, nstep=steps)
            self._steps += steps

    def snapshot(self) -> Snapshot:
        """A copy of the present state."""
        qpos = self._data.qpos
        qvel = self._data.qvel
        return Snapshot(
            self.time,
            qpos[self._positions],
            qvel[self._velocities],
            qpos[self._cubes],
            qvel[self._cube_velocities],
        )

    def link_poses(self) -> dict[str, Array]:
        """MuJoCo's own 4x4 poses of all bodies at the present state, by name."""
        self._mujoco.mj_kinematics(self.model, self._data)
        poses: dict[str, Array] = {}
        for index in range(1, self.model.nbody):
            body = self._data.body(index)
            pose = np.eye(4)
            pose[:3, :3] = body.xmat.reshape(3, 3)
            pose[:3, 3] = body.xpos
            poses[body.name] = pose
        return poses
