"""Random checkpoints in the format of trained ones, for demonstrations, tests and benchmarks."""

from __future__ import annotations

from vla_simd_ros.checkpoints.synthesis.options import Camera, OptionError, Options
from vla_simd_ros.checkpoints.synthesis.registry import POLICY_TYPES, default_options, make_checkpoint

__all__ = ["POLICY_TYPES", "Camera", "OptionError", "Options", "default_options", "make_checkpoint"]
