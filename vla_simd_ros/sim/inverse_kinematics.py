"""Joint positions with which the gripper, pointing straight down, is at a place.

The arm is a plane chain of three hinges on a vertical axis, so this has a closed form: the shoulder turns
to the place, two links of known length reach the wrist, and the wrist points down.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vla_simd_ros.sim.arm import JOINT_NAMES, LINKS, LOWER, UPPER

Array = npt.NDArray[np.float64]

_OFFSETS = {link.name: link.offset for link in LINKS}
_AXIS_X, _, _AXIS_Z = _OFFSETS["shoulder"]
_LIFT_X, _, _LIFT_Z = _OFFSETS["upper_arm"]
_UPPER_X, _, _UPPER_Z = _OFFSETS["lower_arm"]
_LOWER_X, _, _LOWER_Z = _OFFSETS["wrist"]
_HAND_X = _OFFSETS["gripper_body"][0]
_UPPER_LENGTH, _UPPER_ANGLE = math.hypot(_UPPER_X, _UPPER_Z), math.atan2(_UPPER_Z, _UPPER_X)
_LOWER_LENGTH, _LOWER_ANGLE = math.hypot(_LOWER_X, _LOWER_Z), math.atan2(_LOWER_Z, _LOWER_X)


class Unreachable(ValueError):
    """No joint positions within the limits put the gripper there."""


def point_down_at(point: npt.ArrayLike, tool: tuple[float, float], gripper: float) -> Array:
    """[6] radians that put a point of the gripper at `point`, the gripper pointing down and not rolled.

    point: [3] metres in the base frame
    tool: x and z of the gripper's point in the frame of `gripper_body`, metres; it is on its middle plane
    gripper: the opening of the jaws, radians, which is taken over

    Raises Unreachable when the place is too far, too near or needs a joint beyond its limit.
    """
    x, y, z = (float(value) for value in np.asarray(point, dtype=np.float64))
    angle = math.atan2(y, x - _AXIS_X)
    # From the shoulder's lift axis to the wrist's, in the plane of the arm. Pointing down, the gripper's x is
    # downwards and its z outwards.
    out = math.hypot(x - _AXIS_X, y) - tool[1] - _LIFT_X
    up = z + tool[0] + _HAND_X - _AXIS_Z - _LIFT_Z
    cosine = (out**2 + up**2 - _UPPER_LENGTH**2 - _LOWER_LENGTH**2) / (2.0 * _UPPER_LENGTH * _LOWER_LENGTH)
    if not -1.0 <= cosine <= 1.0:
        raise Unreachable(f"gripper: ({x:.3f}, {y:.3f}, {z:.3f}) m is out of reach")
    bend = -math.acos(cosine)  # the elbow is above the line from shoulder to wrist
    elevation = math.atan2(up, out) - math.atan2(
        _LOWER_LENGTH * math.sin(bend), _UPPER_LENGTH + _LOWER_LENGTH * cosine
    )
    lift = _UPPER_ANGLE - elevation
    elbow = _LOWER_ANGLE - (elevation + bend) - lift
    positions = np.array([-angle, lift, elbow, math.pi / 2.0 - lift - elbow, 0.0, gripper])
    beyond = np.flatnonzero((positions < LOWER) | (positions > UPPER))
    if beyond.size:
        name, value = JOINT_NAMES[beyond[0]], positions[beyond[0]]
        limits = f"{LOWER[beyond[0]]:.3f} to {UPPER[beyond[0]]:.3f}"
        raise Unreachable(
            f"gripper: ({x:.3f}, {y:.3f}, {z:.3f}) m needs '{name}' at {value:.3f} rad, expected {limits}"
        )
    return positions
