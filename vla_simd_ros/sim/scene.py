"""What surrounds the arm: the table with two pads, a few loose cubes, the light and the two cameras."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.shapes import Box, Color, Vector

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LooseCube:
    """A cube that the arm can push; its frame is its centre. Metres and kilograms."""

    name: str
    start: Vector
    half_size: float
    mass: float
    color: Color

    @property
    def box(self) -> Box:
        return Box((0.0, 0.0, 0.0), (self.half_size,) * 3, self.color)


@dataclass(frozen=True)
class Pad:
    """A square painted on the table, along its edges. Metres."""

    name: str
    center: tuple[float, float]
    half_size: float
    color: Color

    @property
    def box(self) -> Box:
        """As thick as it takes to be drawn above the table's face."""
        return Box((*self.center, 0.0), (self.half_size, self.half_size, 0.0006), self.color)

    def holds(self, x: float, y: float) -> bool:
        """Whether a point of the table lies within the pad."""
        return max(abs(x - self.center[0]), abs(y - self.center[1])) <= self.half_size


@dataclass(frozen=True)
class Camera:
    """A pinhole camera fixed to `link` ("" for the table), at `position` and looking at `target` there.

    `up` only has to lie on the upper side of the picture; `fovy` is the vertical field of view in degrees.
    """

    name: str
    link: str
    position: Vector
    target: Vector
    up: Vector
    fovy: float

    def axes(self) -> Array:
        """3x3 rotation into the link's frame: columns are the picture's right, its up, and backwards."""
        backward = np.subtract(self.position, self.target)
        backward /= np.linalg.norm(backward)
        right = np.cross(self.up, backward)
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(backward, right), backward], axis=1)

    def pose(self, links: Mapping[str, Array]) -> Array:
        """4x4 transform from the camera's frame to the base frame, given the poses of the links."""
        local = np.eye(4)
        local[:3, :3] = self.axes()
        local[:3, 3] = self.position
        return links[self.link] @ local if self.link else local

    def focal_length(self, height: int) -> float:
        """In pixels, for a picture of `height` rows."""
        return 0.5 * height / math.tan(math.radians(self.fovy) / 2.0)


TABLE = Box((0.20, 0.0, -0.02), (0.45, 0.45, 0.02), (0.52, 0.41, 0.31))
"""Its upper face is the plane z = 0."""

CUBES: tuple[LooseCube, ...] = (
    LooseCube("red_cube", (0.27, 0.07, 0.015), 0.015, 0.02, (0.80, 0.12, 0.12)),
    LooseCube("green_cube", (0.22, -0.10, 0.015), 0.015, 0.02, (0.13, 0.62, 0.22)),
    LooseCube("blue_cube", (0.33, -0.03, 0.015), 0.015, 0.02, (0.12, 0.27, 0.80)),
)

PADS: tuple[Pad, ...] = (
    Pad("left_pad", (0.125, 0.165), 0.042, (0.95, 0.94, 0.90)),
    Pad("right_pad", (0.125, -0.165), 0.042, (0.10, 0.10, 0.13)),
)
"""Left and right as the arm sees it."""

FRONT = Camera("front", "", (0.58, 0.0, 0.50), (0.178, 0.0, 0.020), (0.0, 0.0, 1.0), 30.5)
WRIST = Camera("wrist", "gripper_body", (0.005, 0.050, 0.062), (0.092, 0.004, 0.014), (0.0, 0.0, 1.0), 72.0)
CAMERAS: dict[str, Camera] = {camera.name: camera for camera in (FRONT, WRIST)}

_WALL: Color = (0.66, 0.74, 0.82)
ROOM: tuple[Box, ...] = (
    Box((0.2, 0.0, -0.75), (1.5, 1.5, 0.01), (0.45, 0.46, 0.48)),
    Box((-1.3, 0.0, 0.5), (0.01, 1.5, 1.25), _WALL),
    Box((1.7, 0.0, 0.5), (0.01, 1.5, 1.25), _WALL),
    Box((0.2, -1.5, 0.5), (1.5, 0.01, 1.25), _WALL),
    Box((0.2, 1.5, 0.5), (1.5, 0.01, 1.25), _WALL),
    Box((0.2, 0.0, 1.75), (1.5, 1.5, 0.01), (0.85, 0.86, 0.88)),
)
"""Floor, walls and ceiling: plain surfaces are several times cheaper to draw than a textured sky."""

LIGHT_DIRECTION: Vector = (-0.4, 0.3, -0.87)
"""The way the light travels."""
