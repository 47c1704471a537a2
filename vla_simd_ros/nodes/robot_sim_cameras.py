"""The thread that draws the simulated cameras' pictures beside the physics."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from rclpy.time import Time

from vla_simd_ros.sim.physics import Snapshot
from vla_simd_ros.sim.robot import SimulatedRobot
from vla_simd_ros.sim.scene import CAMERAS

Picture = npt.NDArray[np.uint8]
"""RGB [height, width, 3]"""


class CameraWorker:
    """Draws and hands on the latest snapshot for every camera; a snapshot that comes too early is skipped."""

    def __init__(self, robot: SimulatedRobot, publish: Callable[[str, Picture, Time], None]) -> None:
        """publish: called in the worker's thread with camera, picture and the stamp of its capture."""
        self._robot = robot
        self._publish = publish
        self._changed = threading.Condition()
        self._waiting: tuple[Snapshot, Time] | None = None
        self._closing = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cameras", daemon=True)
        self.stopped: frozenset[str] = frozenset()
        self.sent = dict.fromkeys(CAMERAS, 0)
        self.skipped = 0
        self.error: Exception | None = None

    def start(self) -> None:
        """Opens the renderer in the worker's thread. Raises what that raises."""
        self._thread.start()
        self._ready.wait()
        if self.error is not None:
            raise self.error

    def submit(self, snapshot: Snapshot, stamp: Time) -> None:
        """Asks for the pictures of an instant; counts one that had to make room for it."""
        with self._changed:
            self.skipped += self._waiting is not None
            self._waiting = snapshot, stamp
            self._changed.notify()

    def close(self) -> bool:
        """Ends the thread; whether it has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout=1.0)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for camera in CAMERAS:
                self._robot.render(camera)  # the first picture of a renderer takes long
            self._ready.set()
            while (waiting := self._next()) is not None:
                self._draw(*waiting)
            self._robot.close()
        except Exception as error:  # kept for the node's thread, which ends the node with it
            self.error = error
        finally:
            self._ready.set()

    def _next(self) -> tuple[Snapshot, Time] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting is not None)
            waiting, self._waiting = self._waiting, None
            return None if self._closing else waiting

    def _draw(self, snapshot: Snapshot, stamp: Time) -> None:
        for camera in CAMERAS:
            if camera not in self.stopped:
                self._publish(camera, self._robot.render(camera, snapshot).image, stamp)
                self.sent[camera] += 1
