"""The content of a checkpoint before it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vla_simd_ros.checkpoints.synthesis.weights import F32


@dataclass(frozen=True)
class Recipe:
    """Configuration, weights and processing steps.

    ``files`` are further files by their place in the folder: JSON objects, texts, or files to copy.
    ``stored`` gives the type of tensors whose names begin in some way, where it is not that of all. Without
    ``preprocessor`` and ``postprocessor`` there are no such files. ``shard_bytes``: weights are in several
    files with an index, none of them larger unless one tensor is, counted in float32.
    """

    config: dict[str, Any]
    tensors: dict[str, F32]
    preprocessor: list[dict[str, Any]] | None
    postprocessor: list[dict[str, Any]] | None
    files: dict[str, Any] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    shard_bytes: int | None = None
