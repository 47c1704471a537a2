"""This package's driving planners in PyTorch, independent of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import Case


class _Driving:
    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        import torch

        from vla_simd_ros.training.driving import DrivingPredictor

        self._predictor = DrivingPredictor(
            checkpoint, instruction, torch.float64 if dtype is np.float64 else torch.float32
        )

    def predict(self, case: Case) -> npt.NDArray[Any]:
        seen = case.observation
        assert seen.state is not None
        actions: npt.NDArray[Any] = self._predictor.predict(seen.images, seen.state)
        return actions


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> _Driving:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return _Driving(checkpoint, instruction, dtype)
