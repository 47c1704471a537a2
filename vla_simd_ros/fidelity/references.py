"""Reference implementations, each runnable in float32 and in float64 on raw observations.

PyTorch and LeRobot are imported only when a reference of theirs is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.executors.reference_executor import ReferenceExecutor
from vla_simd_ros.fidelity.errors import UnavailableReferenceError
from vla_simd_ros.fidelity.programs import instruct
from vla_simd_ros.inference import Observation

Array = npt.NDArray[Any]
LEROBOT, TORCH, FLOAT64 = "lerobot", "torch", "float64"
REFERENCES = (LEROBOT, TORCH, FLOAT64)


class Reference(Protocol):
    """A policy's reference implementation at one precision."""

    def predict(self, observation: Observation) -> Array:
        """Actions ``[chunk, A]`` in robot units, in the reference's precision."""
        ...


class _Numpy:
    """The package's own graph in numpy: checks the kernels, not the description of the network."""

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        self._policy = instruct(checkpoint, instruction)
        self._executable = ReferenceExecutor(dtype).load(self._policy.compiled)

    def predict(self, observation: Observation) -> Array:
        return self._policy.run(self._executable, observation)["action"]


class _Impact:
    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        import torch

        from vla_simd_ros.training.impact_predictor import ImpactPredictor

        self._instruction = instruction
        self._predictor = ImpactPredictor(checkpoint, torch.float64 if dtype is np.float64 else torch.float32)

    def predict(self, observation: Observation) -> Array:
        observed = (observation.images, observation.state, observation.env_state)
        actions: Array = self._predictor.predict(*observed, self._instruction)
        return actions


def make_reference(
    name: str, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]
) -> Reference:
    """Reference ``name`` of the checkpoint's policy, computing in ``dtype``.

    Raises `UnavailableReferenceError` if it does not know the policy or is not installed.
    """
    if name not in references_for(checkpoint.type):
        known = ", ".join(references_for(checkpoint.type))
        raise UnavailableReferenceError(
            f"there is no reference '{name}' for policy '{checkpoint.type}', expected one of {known}"
        )
    return _MAKERS[name](checkpoint, instruction, dtype)


def references_for(policy: str) -> Sequence[str]:
    """References of a policy, the most independent first."""
    return (*_INDEPENDENT.get(policy, ()), FLOAT64)


def _lerobot(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> Reference:
    from vla_simd_ros.fidelity.lerobot_act import LeRobotAct

    return LeRobotAct(checkpoint, dtype)


_INDEPENDENT = {"act": (LEROBOT,), "impact": (TORCH,)}
_MAKERS: dict[str, Callable[[Checkpoint, str, type[np.floating[Any]]], Reference]] = {
    LEROBOT: _lerobot,
    TORCH: _Impact,
    FLOAT64: _Numpy,
}
