"""Pictures of the world drawn with OpenCV from the arm's kinematics, for machines without an OpenGL driver.

Shapes are turned into flat-shaded convex faces, sorted by their distance and painted from the farthest to
the nearest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import LINKS, forward_kinematics, rotation
from vla_simd_ros.sim.physics import Snapshot
from vla_simd_ros.sim.scene import CAMERAS, CUBES, LIGHT_DIRECTION, PADS, ROOM, TABLE, Camera
from vla_simd_ros.sim.shapes import Box, Capsule, Color, Shape

Array = npt.NDArray[np.float64]
Image = npt.NDArray[np.uint8]

_NEAR = 0.01
"""Metres before the camera at which faces are cut off."""
_PIECE = 0.03
"""Metres; longer capsules are sorted piece by piece, so that one can pass both before and behind a box."""
_AMBIENT, _DIFFUSE = 0.50, 0.62
_RIM = 0.72
"""Brightness of a capsule's outer part, whose surface turns away from the viewer."""
_FRACTION_BITS = 4
_CIRCLE = np.array([(math.cos(a), math.sin(a)) for a in np.linspace(0.0, 2.0 * math.pi, 20, endpoint=False)])
_TO_LIGHT = -np.array(LIGHT_DIRECTION) / np.linalg.norm(LIGHT_DIRECTION)

_BOX_CORNERS = np.array([(x, y, z) for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
_BOX_FACES = (
    ((-1.0, 0.0, 0.0), (0, 1, 3, 2)),
    ((1.0, 0.0, 0.0), (4, 6, 7, 5)),
    ((0.0, -1.0, 0.0), (0, 4, 5, 1)),
    ((0.0, 1.0, 0.0), (2, 3, 7, 6)),
    ((0.0, 0.0, -1.0), (0, 2, 6, 4)),
    ((0.0, 0.0, 1.0), (1, 5, 7, 3)),
)
"""Outward normals and corner numbers."""


@dataclass(frozen=True)
class _Face:
    distance: float
    outline: Array
    """[n, 2] pixels"""
    color: Color


class CvRenderer:
    """Draws snapshots with the CPU alone; the same snapshot always gives the same picture."""

    name = "opencv"

    def __init__(self, width: int, height: int) -> None:
        self._width = width
        self._height = height

    def render(self, snapshot: Snapshot, camera: str) -> Image:
        """The view of `camera` at `snapshot`: a new RGB picture [height, width, 3]."""
        links = forward_kinematics(snapshot.positions)
        view = _View(CAMERAS[camera], links, self._width, self._height)
        faces: list[_Face] = []
        for link in LINKS:
            for shape in link.shapes:
                faces.extend(view.faces(shape, links[link.name]))
        for cube, pose in zip(CUBES, snapshot.cubes, strict=True):
            faces.extend(view.faces(cube.box, _cube_pose(pose)))
        faces.sort(key=lambda face: -face.distance)
        image: Image = np.zeros((self._height, self._width, 3), np.uint8)
        # Nothing can be behind the room's surfaces, nor below the table or the paint on it.
        for surface in (*ROOM, TABLE, *(pad.box for pad in PADS)):
            for face in view.faces(surface, np.eye(4)):
                _paint(image, face)
        for face in faces:
            _paint(image, face)
        return image

    def close(self) -> None:
        """Nothing to free; the counterpart of the OpenGL renderer's."""


class _View:
    """The projection of one camera at one instant."""

    def __init__(self, camera: Camera, links: dict[str, Array], width: int, height: int) -> None:
        pose = camera.pose(links)
        self._eye = pose[:3, 3]
        self._to_camera = pose[:3, :3].T
        self._focal = camera.focal_length(height)
        self._center = np.array([0.5 * width, 0.5 * height])

    def faces(self, shape: Shape, pose: Array) -> Iterator[_Face]:
        """The visible faces of a shape whose frame has `pose` (4x4, into the base frame)."""
        return self._capsule(shape, pose) if isinstance(shape, Capsule) else self._box(shape, pose)

    def _locate(self, points: Array) -> Array:
        """Points [n, 3] of the base frame as (right, up, depth) of the camera."""
        seen = (points - self._eye) @ self._to_camera.T
        seen[:, 2] *= -1.0
        return np.asarray(seen)

    def _project(self, seen: Array) -> Array:
        """(right, up, depth) [n, 3] to pixels [n, 2]."""
        return np.asarray(self._center + self._focal * seen[:, :2] * (1.0, -1.0) / seen[:, 2:])

    def _box(self, box: Box, pose: Array) -> Iterator[_Face]:
        local = np.array(box.center) + _BOX_CORNERS * box.half_size
        corners = local @ pose[:3, :3].T + pose[:3, 3]
        seen = self._locate(corners)
        for normal, numbers in _BOX_FACES:
            outward = pose[:3, :3] @ np.array(normal)
            if outward @ (self._eye - corners[numbers[0]]) <= 0.0:
                continue
            visible = _cut_at_near_plane(seen[list(numbers)])
            if visible.size:
                light = _AMBIENT + _DIFFUSE * max(0.0, float(outward @ _TO_LIGHT))
                distance = float(np.linalg.norm(visible.mean(axis=0)))
                yield _Face(distance, self._project(visible), _scaled(box.color, light))

    def _capsule(self, capsule: Capsule, pose: Array) -> Iterator[_Face]:
        ends = np.array([capsule.start, capsule.end]) @ pose[:3, :3].T + pose[:3, 3]
        pieces = max(1, math.ceil(float(np.linalg.norm(ends[1] - ends[0])) / _PIECE))
        seen = self._locate(np.linspace(ends[0], ends[1], pieces + 1))
        light = _AMBIENT + _DIFFUSE * 0.7
        for first, second in itertools.pairwise(seen):
            pair = np.stack([first, second])
            if (pair[:, 2] <= _NEAR).any():
                continue
            distance = float(np.linalg.norm(pair.mean(axis=0))) - capsule.radius
            for size, brightness in ((1.0, _RIM), (0.6, 1.0)):
                radii = size * capsule.radius * self._focal / pair[:, 2]
                circles = self._project(pair)[:, None, :] + radii[:, None, None] * _CIRCLE
                hull = cv2.convexHull(circles.reshape(-1, 2).astype(np.float32))
                nearer = 0.0 if size == 1.0 else _PIECE  # the core is painted after the neighbours' rims
                color = _scaled(capsule.color, light * brightness)
                yield _Face(distance - nearer, hull.reshape(-1, 2), color)


def _cut_at_near_plane(outline: Array) -> Array:
    """The part of a convex outline [n, 3] (right, up, depth) that lies beyond the near plane."""
    kept: list[Array] = []
    for point, following in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if point[2] > _NEAR:
            kept.append(point)
        if (point[2] > _NEAR) != (following[2] > _NEAR):
            share = (_NEAR - point[2]) / (following[2] - point[2])
            kept.append(point + share * (following - point))
    return np.array(kept).reshape(-1, 3)


def _cube_pose(state: Array) -> Array:
    """4x4 pose of a cube from its centre and quaternion [7]."""
    pose = np.eye(4)
    pose[:3, 3] = state[:3]
    sine = float(np.linalg.norm(state[4:]))
    if sine > 0.0:
        x, y, z = (float(value) / sine for value in state[4:])
        pose[:3, :3] = rotation((x, y, z), 2.0 * math.atan2(sine, float(state[3])))
    return pose


def _scaled(color: Color, brightness: float) -> Color:
    red, green, blue = (255.0 * min(1.0, value * brightness) for value in color)
    return red, green, blue


def _paint(image: Image, face: _Face) -> None:
    limit = 8.0 * max(image.shape)
    fixed = np.rint(np.clip(face.outline, -limit, limit) * (1 << _FRACTION_BITS)).astype(np.int32)
    cv2.fillConvexPoly(image, fixed, face.color, cv2.LINE_AA, _FRACTION_BITS)
