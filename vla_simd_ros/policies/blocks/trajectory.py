"""A vehicle's motion as a policy takes it, and its plan as a policy gives it."""

from __future__ import annotations

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor

STATE = (
    "x",
    "y",
    "yaw",
    "cos_yaw",
    "sin_yaw",
    "longitudinal_velocity",
    "lateral_velocity",
    "yaw_rate",
)
"""Columns of the state: the pose in the map, metres and radians, with cosine and sine of the yaw; velocities
of the vehicle in its own frame, metres and radians per second."""
MOTION = 5
"""The first column of what the network may see: a pose in the map is no business of its."""
ACTION = ("x", "y", "yaw", "longitudinal_velocity")
"""Columns of a row of the plan, a pose in the map and the velocity there."""


def motion(b: Builder, state: Tensor, *, name: str) -> Tensor:
    """The velocities of a state [1, 8]."""
    return b.slice(state, axis=1, start=MOTION, stop=len(STATE), name=name)


def placed_in_map(b: Builder, rows: Tensor, state: Tensor, *, name: str) -> Tensor:
    """Rows [n, 4] of a plan in the vehicle's frame, placed where the state [1, 8] says that it is."""
    x, y, yaw, cos, sin = (
        b.slice(state, axis=1, start=i, stop=i + 1, name=f"{name}.{STATE[i]}") for i in range(MOTION)
    )
    ahead, left, turn, velocity = (
        b.slice(rows, axis=1, start=i, stop=i + 1, name=f"{name}.relative.{column}")
        for i, column in enumerate(ACTION)
    )
    east = b.binary("mul", ahead, cos, name=f"{name}.ahead.cos")
    east = b.binary("sub", east, b.binary("mul", left, sin, name=f"{name}.left.sin"), name=f"{name}.east")
    north = b.binary("mul", ahead, sin, name=f"{name}.ahead.sin")
    north = b.add(north, b.binary("mul", left, cos, name=f"{name}.left.cos"), name=f"{name}.north")
    placed = [
        b.add(offset, origin, name=f"{name}.placed.{column}")
        for offset, origin, column in zip((east, north, turn), (x, y, yaw), ACTION, strict=False)
    ]
    return b.concat([*placed, velocity], axis=1, name=name)
