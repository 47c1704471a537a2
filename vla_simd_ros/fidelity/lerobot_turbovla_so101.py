"""LeRobot's TurboVLA in the form of the package lerobot-policy-turbovla-so101."""

from __future__ import annotations

from vla_simd_ros.fidelity.lerobot_turbovla import reference

__all__ = ["reference"]
