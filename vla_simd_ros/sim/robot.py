"""The simulated robot: an arm to command, joints to read, cameras to look through."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.mjcf import TIMESTEP
from vla_simd_ros.sim.physics import Physics, SimulationError, Snapshot
from vla_simd_ros.sim.rendering import Renderer, open_renderer
from vla_simd_ros.sim.scene import CAMERAS

Array = npt.NDArray[np.float64]

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Frame:
    """A camera picture: RGB [height, width, 3], and the simulated time (s) at which it was captured."""

    image: npt.NDArray[np.uint8]
    time: float


class SimulatedRobot:
    """An SO-101 on its table, in simulated time.

    One thread moves and reads the robot; one thread, the same or another, renders. They share nothing
    but the snapshots that the first one hands over.
    """

    def __init__(
        self,
        *,
        width: int = 640,
        height: int = 480,
        renderer: str = "auto",
        warn: Callable[[str], None] = _LOGGER.warning,
    ) -> None:
        """Builds the world; the renderer (one of `rendering.RENDERERS`) is opened by the first `render`.

        width, height: pictures in pixels

        Raises SimulationError when MuJoCo is missing or a size is not positive.
        """
        if width < 1 or height < 1:
            raise SimulationError(f"camera picture: got {width}x{height} pixels, expected at least 1x1")
        self._size = width, height
        self._renderer_kind = renderer
        self._warn = warn
        self._physics = Physics(width, height)
        self._renderer: Renderer | None = None
        self._unstepped = 0.0

    @property
    def time(self) -> float:
        """Simulated seconds since the start, a whole number of time steps."""
        return self._physics.time

    @property
    def joint_positions(self) -> Array:
        """[6] radians, in `arm.JOINT_NAMES` order."""
        return self._physics.snapshot().positions

    @property
    def joint_velocities(self) -> Array:
        """[6] radians per second."""
        return self._physics.snapshot().velocities

    @property
    def command(self) -> Array:
        """[6] the present targets of the servos, radians."""
        return self._physics.command

    def set_command(self, targets: npt.ArrayLike) -> None:
        """New targets [6] in radians; beyond a limit a servo stops at the limit.

        Raises SimulationError when the shape is wrong or a value is not finite; the old targets then stay.
        """
        self._physics.set_command(targets)

    def step(self, dt: float) -> None:
        """Moves on by `dt` seconds; what is less than a time step is kept for the next call.

        Raises SimulationError when `dt` is negative or not finite.
        """
        if not dt >= 0.0 or dt == float("inf"):
            raise SimulationError(f"time to simulate: got {dt} s, expected zero or more")
        self._unstepped += dt
        steps = int(self._unstepped / TIMESTEP + 1e-9)
        self._unstepped -= steps * TIMESTEP
        self._physics.advance(steps)

    def snapshot(self) -> Snapshot:
        """The present state, to be rendered now or later."""
        return self._physics.snapshot()

    def reset(self) -> None:
        """Back to time zero and the home position."""
        self._physics.reset()
        self._unstepped = 0.0

    def place(self, positions: npt.ArrayLike, cubes: npt.ArrayLike) -> None:
        """Puts arm [6] and cubes [n, 7] at rest, the servos told to stay there; time goes on.

        Raises SimulationError as `Physics.place` and `Physics.place_cubes` do.
        """
        self._physics.place(positions)
        self._physics.place_cubes(cubes)

    def render(self, camera: str, snapshot: Snapshot | None = None) -> Frame:
        """The view of a camera, at `snapshot` or at the present state.

        Raises SimulationError for an unknown camera, or when the wanted renderer cannot be opened.
        """
        if camera not in CAMERAS:
            raise SimulationError(f"camera: got '{camera}', expected one of {', '.join(CAMERAS)}")
        if self._renderer is None:
            self._renderer = open_renderer(self._renderer_kind, self._physics.model, *self._size, self._warn)
        seen = self._physics.snapshot() if snapshot is None else snapshot
        return Frame(self._renderer.render(seen, camera), seen.time)

    @property
    def renderer_name(self) -> str:
        """The renderer in use, "" before the first picture."""
        return "" if self._renderer is None else self._renderer.name

    def close(self) -> None:
        """Frees the renderer; call it in the thread that renders."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
