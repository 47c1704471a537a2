"""This package's IMPACT in PyTorch, written for training and independent of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import Case


class _Impact:
    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        import torch

        from vla_simd_ros.training.impact_predictor import ImpactPredictor

        self._instruction = instruction
        self._predictor = ImpactPredictor(checkpoint, torch.float64 if dtype is np.float64 else torch.float32)

    def predict(self, case: Case) -> npt.NDArray[Any]:
        seen = case.observation
        actions: npt.NDArray[Any] = self._predictor.predict(
            seen.images, seen.state, seen.env_state, self._instruction
        )
        return actions


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> _Impact:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return _Impact(checkpoint, instruction, dtype)
