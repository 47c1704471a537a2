"""The content of a checkpoint before it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vla_simd_ros.checkpoints.synthesis.weights import F32


@dataclass(frozen=True)
class Recipe:
    """Configuration, weights and processing steps.

    ``files`` are further files by their place in the folder: JSON objects, texts, or files to copy.
    ``stored`` gives the type of tensors whose names begin in some way, where it is not that of all.
    """

    config: dict[str, Any]
    tensors: dict[str, F32]
    preprocessor: list[dict[str, Any]]
    postprocessor: list[dict[str, Any]]
    files: dict[str, Any] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
