"""The policy that a checkpoint's type names."""

from __future__ import annotations

from collections.abc import Callable

from vla_simd_ros.checkpoints.checkpoint import Checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.checkpoints.openvla_folder import OPENVLA
from vla_simd_ros.policies.act import ActPolicy
from vla_simd_ros.policies.base import PolicyDefinition
from vla_simd_ros.policies.diffusion import DiffusionPolicy
from vla_simd_ros.policies.impact import ImpactPolicy
from vla_simd_ros.policies.impact_tokens import ImpactTokensPolicy
from vla_simd_ros.policies.minddrive import MindDrivePolicy
from vla_simd_ros.policies.octo import OctoPolicy
from vla_simd_ros.policies.openvla import OpenVlaPolicy
from vla_simd_ros.policies.orion import OrionPolicy
from vla_simd_ros.policies.pi0_fast import Pi0FastPolicy
from vla_simd_ros.policies.smolvla import SmolVlaPolicy
from vla_simd_ros.policies.turbovla import TurboVlaPolicy
from vla_simd_ros.policies.turbovla_config import FORMS

_POLICIES: dict[str, Callable[[Checkpoint], PolicyDefinition]] = {
    "act": ActPolicy,
    "diffusion": DiffusionPolicy,
    "impact": ImpactPolicy,
    "impact_tokens": ImpactTokensPolicy,
    "smolvla": SmolVlaPolicy,
    **dict.fromkeys(FORMS, TurboVlaPolicy),
    "octo": OctoPolicy,
    "minddrive": MindDrivePolicy,
    "orion": OrionPolicy,
    OPENVLA: OpenVlaPolicy,
    "pi0_fast": Pi0FastPolicy,
}
POLICY_TYPES = tuple(_POLICIES)


def define_policy(checkpoint: Checkpoint) -> PolicyDefinition:
    """The policy in ``checkpoint``. Raises CheckpointError for an unknown type or a misfit of any part."""
    if checkpoint.type not in _POLICIES:
        known = ", ".join(POLICY_TYPES)
        raise CheckpointError(
            f"{checkpoint.folder}: policy type '{checkpoint.type}' is not supported, expected one of {known}"
        )
    return _POLICIES[checkpoint.type](checkpoint)
