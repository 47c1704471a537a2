"""Octo in PyTorch, one token sequence and one mask as in its publication, independent of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import Case


class _Octo:
    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        import torch

        from vla_simd_ros.training.octo import OctoPredictor

        self._predictor = OctoPredictor(
            checkpoint, instruction, torch.float64 if dtype is np.float64 else torch.float32
        )

    def predict(self, case: Case) -> npt.NDArray[Any]:
        seen = case.observation
        assert case.noise is not None
        actions: npt.NDArray[Any] = self._predictor.predict(seen.images, seen.valid, case.noise)
        return actions


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> _Octo:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return _Octo(checkpoint, instruction, dtype)
