"""What a checkpoint's makers say of its execution, beside the rows of a chunk: when queries start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vla_simd_ros.checkpoints import json_file
from vla_simd_ros.checkpoints.errors import CheckpointError
from vla_simd_ros.control.query_timing import DEFAULT_THRESHOLD, Pacing, QueryPacing

EXECUTION = "execution.json"
_PACING, _THRESHOLD = "query_pacing", "query_threshold"


def recommended_pacing(folder: Path) -> Pacing | None:
    """From ``execution.json`` in a checkpoint's folder; None where it is not there, or says nothing of it.

    Raises `CheckpointError` for a file that says something else.
    """
    path = folder / EXECUTION
    return pacing_from(json_file.read_json_object(path), path) if path.is_file() else None


def pacing_from(content: Mapping[str, Any], path: Path) -> Pacing | None:
    """From the content of such a file, which ``path`` names for errors."""
    if unknown := sorted(set(content) - {_PACING, _THRESHOLD}):
        raise CheckpointError(f"{path}: unknown field '{unknown[0]}', expected {_PACING} and {_THRESHOLD}")
    if _PACING not in content:
        return None
    said, known = json_file.field(content, _PACING, str, path), [each.value for each in QueryPacing]
    if said not in known:
        raise CheckpointError(f"{path}: {_PACING} is '{said}', expected one of {', '.join(known)}")
    threshold = json_file.field({_THRESHOLD: DEFAULT_THRESHOLD, **content}, _THRESHOLD, int, path)
    if threshold < 0:
        raise CheckpointError(f"{path}: {_THRESHOLD} is {threshold} control steps, expected 0 or more")
    return Pacing(QueryPacing(said), threshold)


def execution_file(pacing: Pacing) -> Mapping[str, Any]:
    """The content of the file for a pacing."""
    return {_PACING: pacing.kind.value, _THRESHOLD: pacing.threshold}
