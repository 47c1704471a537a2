"""The SO-101 arm as data: joints, limits, links; and its forward kinematics.

Every link frame sits on its joint's axis and is parallel to the base frame when all joints are at
zero: x points forward, y left, z up, and the arm then reaches forward with its upper arm upright.
Limits, joint positions and masses are those of the real arm; the outline is made of capsules and boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.shapes import Box, Capsule, Shape, Vector

Array = npt.NDArray[np.float64]

_SHELL = (0.93, 0.68, 0.20)
_SERVO = (0.15, 0.15, 0.17)
_JAW = (0.85, 0.86, 0.88)


@dataclass(frozen=True)
class Joint:
    """A hinge: radians; `home` is the angle at which the simulation starts."""

    name: str
    axis: Vector
    lower: float
    upper: float
    home: float


@dataclass(frozen=True)
class Link:
    """A rigid part. `offset` is its frame's origin in the parent's frame (metres); `mass` in kilograms."""

    name: str
    joint: Joint | None
    offset: Vector
    mass: float
    shapes: tuple[Shape, ...]


LINKS: tuple[Link, ...] = (
    Link(
        "base",
        None,
        (0.0, 0.0, 0.0),
        0.147,
        (
            Box((0.0, 0.0, 0.012), (0.055, 0.055, 0.012), _SHELL),
            Box((0.03, 0.0, 0.042), (0.032, 0.026, 0.018), _SERVO),
        ),
    ),
    Link(
        "shoulder",
        Joint("shoulder_pan", (0.0, 0.0, -1.0), -1.91986, 1.91986, 0.0),
        (0.0388, 0.0, 0.0624),
        0.100,
        (
            Box((0.004, 0.0, 0.010), (0.030, 0.028, 0.008), _SHELL),
            Box((0.026, 0.0, 0.046), (0.020, 0.014, 0.026), _SERVO),
        ),
    ),
    Link(
        "upper_arm",
        Joint("shoulder_lift", (0.0, 1.0, 0.0), -1.74533, 1.74533, -1.10),
        (0.0304, 0.0, 0.0542),
        0.103,
        (
            Capsule((0.0, 0.026, 0.0), (0.028, 0.026, 0.1126), 0.010, _SHELL),
            Capsule((0.0, -0.026, 0.0), (0.028, -0.026, 0.1126), 0.010, _SHELL),
            Box((0.022, 0.0, 0.094), (0.013, 0.018, 0.026), _SERVO),
        ),
    ),
    Link(
        "lower_arm",
        Joint("elbow_flex", (0.0, 1.0, 0.0), -1.69, 1.69, 0.90),
        (0.028, 0.0, 0.1126),
        0.104,
        (
            Capsule((0.0, 0.024, 0.0), (0.1349, 0.024, 0.0052), 0.009, _SHELL),
            Capsule((0.0, -0.024, 0.0), (0.1349, -0.024, 0.0052), 0.009, _SHELL),
            Box((0.112, 0.0, 0.004), (0.026, 0.017, 0.013), _SERVO),
        ),
    ),
    Link(
        "wrist",
        Joint("wrist_flex", (0.0, 1.0, 0.0), -1.65806, 1.65806, 1.20),
        (0.1349, 0.0, 0.0052),
        0.079,
        (
            Capsule((0.0, 0.0, 0.0), (0.030, 0.0, 0.0), 0.017, _SHELL),
            Box((0.042, 0.0, 0.0), (0.018, 0.020, 0.015), _SERVO),
        ),
    ),
    Link(
        "gripper_body",
        Joint("wrist_roll", (-1.0, 0.0, 0.0), -2.74385, 2.84121, 0.0),
        (0.0611, 0.0, 0.0),
        0.087,
        (
            Box((0.018, 0.0, 0.004), (0.016, 0.024, 0.022), _SERVO),
            Box((0.064, 0.0, -0.016), (0.034, 0.014, 0.004), _JAW),
            Box((0.034, 0.0, -0.020), (0.009, 0.018, 0.009), _SHELL),
        ),
    ),
    Link(
        "moving_jaw",
        Joint("gripper", (0.0, -1.0, 0.0), -0.174533, 1.74533, 0.40),
        (0.0234, 0.0, 0.0211),
        0.012,
        (
            Capsule((0.0, 0.0, 0.0), (0.030, 0.0, 0.004), 0.008, _SHELL),
            Capsule((0.030, 0.0, 0.004), (0.068, 0.0, -0.018), 0.006, _JAW),
            Capsule((0.068, -0.011, -0.018), (0.068, 0.011, -0.018), 0.006, _JAW),
        ),
    ),
)
"""From the base outwards; each link's parent is the one before it."""

JOINTS: tuple[Joint, ...] = tuple(link.joint for link in LINKS if link.joint is not None)
JOINT_NAMES: tuple[str, ...] = tuple(joint.name for joint in JOINTS)
LOWER: Array = np.array([joint.lower for joint in JOINTS])
UPPER: Array = np.array([joint.upper for joint in JOINTS])
HOME: Array = np.array([joint.home for joint in JOINTS])


def rotation(axis: Vector, angle: float) -> Array:
    """The 3x3 rotation by `angle` radians about the unit vector `axis`."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross))


def forward_kinematics(positions: npt.ArrayLike) -> dict[str, Array]:
    """Poses of all links, as 4x4 transforms into the base frame, for `positions` [6] in `JOINT_NAMES` order.

    Raises ValueError when the number of positions is not that of the joints.
    """
    angles = np.asarray(positions, dtype=np.float64)
    if angles.shape != (len(JOINTS),):
        raise ValueError(f"joint positions: got shape {angles.shape}, expected ({len(JOINTS)},)")
    poses: dict[str, Array] = {}
    pose = np.eye(4)
    remaining = iter(angles)
    for link in LINKS:
        local = np.eye(4)
        local[:3, 3] = link.offset
        if link.joint is not None:
            local[:3, :3] = rotation(link.joint.axis, float(next(remaining)))
        pose = pose @ local
        poses[link.name] = pose
    return poses
