"""Checkpoints as users have them: LeRobot folders with their processors and tokenizers."""

from __future__ import annotations

from vla_simd_ros.checkpoints.checkpoint import Checkpoint, load_checkpoint
from vla_simd_ros.checkpoints.errors import CheckpointError, InstructionError
from vla_simd_ros.checkpoints.features import Feature, FeatureKind
from vla_simd_ros.checkpoints.normalization import Normalizer, Unnormalizer
from vla_simd_ros.checkpoints.tokenizer import TokenIds, Tokenizer

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Feature",
    "FeatureKind",
    "InstructionError",
    "Normalizer",
    "TokenIds",
    "Tokenizer",
    "Unnormalizer",
    "load_checkpoint",
]
