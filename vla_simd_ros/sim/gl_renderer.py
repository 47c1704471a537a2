"""Pictures of the world by MuJoCo's OpenGL renderer, without a display (EGL)."""

from __future__ import annotations

import atexit
import importlib
import os
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import JOINT_NAMES
from vla_simd_ros.sim.physics import Snapshot, load_mujoco
from vla_simd_ros.sim.scene import CAMERAS, CUBES

Image = npt.NDArray[np.uint8]


class GlUnavailable(RuntimeError):
    """No OpenGL driver could be opened; the message says why."""


class GlRenderer:
    """Draws snapshots of `model`. Belongs to the thread that made it."""

    name = "egl"

    def __init__(self, model: Any, width: int, height: int) -> None:
        """Opens the driver. Raises GlUnavailable when that fails."""
        self._mujoco = load_mujoco()
        # Mesa's software rasterizer would otherwise start a thread per core, beside the policy's own.
        os.environ.setdefault("LP_NUM_THREADS", "0")
        try:
            self._gl = importlib.import_module("mujoco.egl").GLContext(width, height)
            self._gl.make_current()
            self._context = self._mujoco.MjrContext(model, self._mujoco.mjtFontScale.mjFONTSCALE_100)
        except Exception as error:  # PyOpenGL reports a missing driver by whatever its first use raises
            raise GlUnavailable(f"{type(error).__name__}: {error}") from error
        atexit.register(self._gl.free)  # at a sudden end the driver would be gone before its context
        self._thread = threading.get_ident()
        self._mujoco.mjr_setBuffer(self._mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._model = model
        self._data = self._mujoco.MjData(model)
        self._rect = self._mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._scene = self._mujoco.MjvScene(model, maxgeom=200)
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION"):
            self._scene.flags[getattr(self._mujoco.mjtRndFlag, flag)] = False
        self._option = self._mujoco.MjvOption()
        self._cameras = {name: self._fixed_camera(name) for name in CAMERAS}
        self._joints = [int(model.joint(name).qposadr[0]) for name in JOINT_NAMES]
        self._cubes = [int(model.joint(cube.name).qposadr[0]) for cube in CUBES]

    def _fixed_camera(self, name: str) -> Any:
        camera = self._mujoco.MjvCamera()
        camera.type = self._mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = self._model.camera(name).id
        return camera

    def render(self, snapshot: Snapshot, camera: str) -> Image:
        """The view of `camera` at `snapshot`: a new RGB picture [height, width, 3]."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("the OpenGL renderer was used from another thread than the one that made it")
        self._data.qpos[self._joints] = snapshot.positions
        for start, pose in zip(self._cubes, snapshot.cubes, strict=True):
            self._data.qpos[start : start + 7] = pose
        self._mujoco.mj_kinematics(self._model, self._data)
        self._mujoco.mj_camlight(self._model, self._data)
        self._mujoco.mjv_updateScene(
            self._model,
            self._data,
            self._option,
            None,
            self._cameras[camera],
            self._mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        self._mujoco.mjr_render(self._rect, self._scene, self._context)
        self._mujoco.mjr_readPixels(self._pixels, None, self._rect, self._context)
        return np.ascontiguousarray(self._pixels[::-1])  # OpenGL's first row is the lowest

    def close(self) -> None:
        """Frees the driver's memory; call it in the renderer's own thread."""
        self._context.free()
        atexit.unregister(self._gl.free)
        self._gl.free()
