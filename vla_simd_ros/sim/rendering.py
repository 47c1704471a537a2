"""The choice of a renderer: OpenGL where a driver is found, else OpenCV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.cv_renderer import CvRenderer
from vla_simd_ros.sim.gl_renderer import GlRenderer, GlUnavailable
from vla_simd_ros.sim.physics import SimulationError, Snapshot

RENDERERS = ("auto", "egl", "opencv")

_INSTALL_HINT = (
    "On Debian and Ubuntu these packages bring the OpenGL driver: "
    "sudo apt install libegl1 libegl-mesa0 libgl1-mesa-dri"
)


class Renderer(Protocol):
    """Draws pictures of one fixed size."""

    @property
    def name(self) -> str:
        """Either "egl" or "opencv"."""

    def render(self, snapshot: Snapshot, camera: str) -> npt.NDArray[np.uint8]:
        """The view of `camera` at `snapshot`: a new RGB picture [height, width, 3]."""

    def close(self) -> None:
        """Frees what the renderer holds."""


def open_renderer(kind: str, model: Any, width: int, height: int, warn: Callable[[str], None]) -> Renderer:
    """A renderer for pictures of `width` x `height`, to be used by the calling thread only.

    kind: one of `RENDERERS`; "auto" takes OpenGL and falls back to OpenCV, telling `warn` why and what to
    install
    model: the MuJoCo model to draw

    Raises SimulationError when `kind` is unknown, or is "egl" and no driver is found.
    """
    if kind not in RENDERERS:
        raise SimulationError(f"renderer: got '{kind}', expected one of {', '.join(RENDERERS)}")
    if kind == "opencv":
        return CvRenderer(width, height)
    try:
        return GlRenderer(model, width, height)
    except GlUnavailable as error:
        if kind == "egl":
            raise SimulationError(f"renderer 'egl': no OpenGL driver ({error}). {_INSTALL_HINT}") from error
        warn(f"no OpenGL driver ({error}); drawing simpler camera views with OpenCV. {_INSTALL_HINT}")
        return CvRenderer(width, height)
