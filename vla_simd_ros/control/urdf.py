"""Joint limits from a robot description (URDF)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.etree import ElementTree


@dataclass(frozen=True)
class UrdfLimit:
    """Limits of one joint: radians or metres, and per second. A continuous joint has infinite positions."""

    lower: float
    upper: float
    velocity: float


def urdf_limits(xml: str) -> dict[str, UrdfLimit]:
    """Limits of the movable joints of a URDF document, by joint name.

    Raises:
        ValueError: the text is no URDF, or a joint that needs limits has none.
    """
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise ValueError(f"the robot description is not XML: {error}") from error
    if root.tag != "robot":
        raise ValueError(f"the robot description's root is <{root.tag}>, expected <robot>")
    movable = ("revolute", "prismatic", "continuous")
    return {
        joint.get("name", ""): _limit(joint)
        for joint in root.findall("joint")
        if joint.get("type") in movable
    }


def _limit(joint: ElementTree.Element) -> UrdfLimit:
    name, continuous = joint.get("name"), joint.get("type") == "continuous"
    limit = joint.find("limit")
    if limit is None:
        if continuous:
            return UrdfLimit(-math.inf, math.inf, math.inf)
        raise ValueError(f"joint '{name}' of the robot description has no <limit>")
    try:
        lower, upper, velocity = (float(limit.get(key, default)) for key, default in _DEFAULTS)
    except ValueError as error:
        raise ValueError(f"joint '{name}' of the robot description: {error}") from error
    if continuous:
        lower, upper = -math.inf, math.inf
    return UrdfLimit(lower, upper, velocity)


_DEFAULTS = (("lower", "0"), ("upper", "0"), ("velocity", "inf"))
