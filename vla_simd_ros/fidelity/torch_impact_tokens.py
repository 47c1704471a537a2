"""This package's IMPACT with action tokens in PyTorch, written for training and independent of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.checkpoints import Checkpoint
from vla_simd_ros.fidelity.cases import Case


class _ImpactTokens:
    """Nothing is kept from token to token but the prefix; everything else is read anew."""

    def __init__(self, checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> None:
        import torch

        from vla_simd_ros.training.impact_predictor import ObservationReader, load_weights, stored_weights
        from vla_simd_ros.training.impact_tokens import ImpactTokensConfig, ImpactTokensPolicy

        self._torch = torch
        self._instruction = instruction
        precision = torch.float64 if dtype is np.float64 else torch.float32
        self._reader = ObservationReader(checkpoint, precision)
        weights, text_config = stored_weights(checkpoint)
        policy = ImpactTokensPolicy(ImpactTokensConfig.from_json(checkpoint.config, text_config))
        load_weights(policy, weights, checkpoint)
        self._policy = policy.to(precision).eval()

    def predict(self, case: Case) -> npt.NDArray[Any]:
        config = self._policy.config
        spelled = self._torch.tensor(self.tokens(case)).unflatten(0, (config.chunk_size, config.action_dim))
        actions: npt.NDArray[Any] = self._policy.model.tokens.untokenize(spelled).numpy()
        return actions + case.observation.state if config.relative_actions else actions

    def tokens(self, case: Case) -> list[int]:
        """See :class:`vla_simd_ros.fidelity.references.Speller`."""
        prefix, found = self._prefix(case), list[int]()
        while len(found) < self._policy.config.token_count:
            found.append(int(self._scores(prefix, found)[-1].argmax()))
        return found

    def scores(self, case: Case, tokens: list[int]) -> npt.NDArray[Any]:
        """See :class:`vla_simd_ros.fidelity.references.Speller`."""
        return self._scores(self._prefix(case), tokens)

    def _prefix(self, case: Case) -> Any:
        """What the layers keep of an observation."""
        seen = case.observation
        inputs = self._reader.inputs(seen.images, seen.state, seen.env_state, self._instruction)
        with self._torch.no_grad():
            prefix = self._policy.prefix(inputs)
            return self._policy.model.tokens.read_prefix(prefix.rows, prefix.there)

    def _scores(self, prefix: Any, tokens: list[int]) -> npt.NDArray[Any]:
        ids = self._torch.tensor([[self._policy.config.first, *tokens]])
        with self._torch.no_grad():
            scores: npt.NDArray[Any] = self._policy.model.tokens.read_tokens(ids, prefix)[0].numpy()
        return scores


def reference(checkpoint: Checkpoint, instruction: str, dtype: type[np.floating[Any]]) -> _ImpactTokens:
    """See :mod:`vla_simd_ros.fidelity.references`."""
    return _ImpactTokens(checkpoint, instruction, dtype)
