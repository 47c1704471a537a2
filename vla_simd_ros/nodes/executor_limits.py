"""The executor's limits: from its parameters, and from a robot description (URDF) where one is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vla_simd_ros.control.limits import JointLimits, Vector
from vla_simd_ros.control.urdf import UrdfLimit, urdf_limits
from vla_simd_ros.nodes.parameters import ParameterError, per_joint

FROM_TOPIC = "topic"
"""As robot_description: the document comes from the topic of that name."""


@dataclass(frozen=True, eq=False)
class LimitParameters:
    """The limits that parameters give, for each joint."""

    joints: tuple[str, ...]
    lower: Vector
    upper: Vector
    velocity: Vector
    acceleration: Vector

    @classmethod
    def of(cls, values: Mapping[str, Any], joints: tuple[str, ...]) -> LimitParameters:
        """From the node's parameters. Raises `ParameterError` for a wrong number of values."""
        names = ("position_lower", "position_upper", "velocity_limit", "acceleration_limit")
        return cls(joints, *(np.array(per_joint(values, name, joints), dtype=np.float64) for name in names))

    def alone(self) -> JointLimits:
        """These limits. Raises ValueError where they make no sense."""
        return self._with([UrdfLimit(-math.inf, math.inf, math.inf)] * len(self.joints))

    def described(self, document: str) -> JointLimits:
        """These limits and those of a URDF document, whichever is tighter.

        Raises:
            ValueError: the document is no URDF, or its limits make no sense with these.
            ParameterError: it lacks a joint.
        """
        limits = urdf_limits(document)
        missing = [joint for joint in self.joints if joint not in limits]
        if missing:
            raise ParameterError(
                f"robot_description: has no movable joints {missing}, it has {sorted(limits)}"
            )
        return self._with([limits[joint] for joint in self.joints])

    def _with(self, limits: list[UrdfLimit]) -> JointLimits:
        return JointLimits(
            np.maximum(self.lower, [limit.lower for limit in limits]),
            np.minimum(self.upper, [limit.upper for limit in limits]),
            np.minimum(self.velocity, [limit.velocity for limit in limits]),
            self.acceleration,
            self.joints,
        )


def first_limits(parameters: LimitParameters, description: str) -> JointLimits:
    """The limits at configuration: with the description that the parameter holds, or names as a file.

    Raises:
        ValueError, ParameterError: as for `LimitParameters.described`; a file that cannot be read.
    """
    if description in ("", FROM_TOPIC):
        return parameters.alone()
    if description.lstrip().startswith("<"):
        return parameters.described(description)
    try:
        return parameters.described(Path(description).read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"robot_description: {error}") from error
