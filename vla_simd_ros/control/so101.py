"""The SO-101 arm, the robot that all defaults are made for: joints, and the limits of its commands.

Radians; the gripper is the last joint. Position limits are those of the arm's calibrated range.
"""

from __future__ import annotations

import numpy as np

from vla_simd_ros.control.limits import JointLimits

JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
LOWER = [-1.91986, -1.74533, -1.69, -1.65806, -2.74385, -0.174533]
UPPER = [1.91986, 1.74533, 1.69, 1.65806, 2.84121, 1.74533]
VELOCITY = 2.0
"""Radians per second, of every joint."""
ACCELERATION = 15.0
"""Radians per second squared, of every joint."""


def joint_limits() -> JointLimits:
    """The limits of every command."""
    return JointLimits(
        lower=np.array(LOWER),
        upper=np.array(UPPER),
        velocity=np.full(len(JOINTS), VELOCITY),
        acceleration=np.full(len(JOINTS), ACCELERATION),
        names=tuple(JOINTS),
    )
