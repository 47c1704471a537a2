"""Batches for action-token policies: encoded observations with the tokens of their chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vla_simd_ros.training.batches import Order
from vla_simd_ros.training.encoded import Encoded
from vla_simd_ros.training.impact_tokens import Prefix
from vla_simd_ros.training.recipe import Recipe, TokenRecipe
from vla_simd_ros.training.token_layers import TokenConfig, TokenLayers
from vla_simd_ros.training.trajectories import States, Trajectories


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Prefixes, the tokens ``[B, n]`` to be learned behind them, and guesses at these if there are any."""

    prefix: Prefix
    tokens: Tensor
    guesses: Tensor | None = None


class DemonstratedTokens:
    """The observations ``rows`` with the tokens of what was done there: ``actions`` [m, chunk, A], of all."""

    def __init__(
        self,
        encoded: Encoded,
        actions: npt.NDArray[np.float32],
        layers: TokenLayers,
        rows: npt.NDArray[np.int64],
        recipe: Recipe,
    ) -> None:
        self._encoded = encoded
        self._actions = actions
        self._layers = layers
        self.rows = rows
        """Observations that are drawn from."""
        self._order = Order(rows, recipe)

    def training(self, step: int) -> TokenBatch:
        """The batch of training step ``step``."""
        return self.batch(self._order.of(step))

    def batch(self, rows: npt.NDArray[np.int64]) -> TokenBatch:
        """The observations ``rows``."""
        actions = torch.from_numpy(self._actions[rows]).to(self._encoded.device)
        return TokenBatch(self._encoded.prefix(rows), self._layers.tokenize(actions).flatten(1))


class TeacherTokens:
    """Observations with the tokens that a teacher's Jacobi trajectories end in, and guesses at these: states
    of the trajectories, new random ones, or the first token repeated, of which the same would become."""

    def __init__(
        self,
        encoded: Encoded,
        trajectories: Trajectories,
        layers: TokenConfig,
        rows: npt.NDArray[np.int64],
        recipe: TokenRecipe,
    ) -> None:
        self._encoded = encoded
        self._trajectories = trajectories
        self._layers = layers
        self._recipe = recipe
        self.rows = rows
        """Observations that are drawn from, all of which have a trajectory."""
        self._order = Order(rows, recipe)

    def training(self, step: int) -> TokenBatch:
        """The batch of training step ``step``."""
        return self._batch(self._order.of(step), np.random.default_rng([self._recipe.seed, 3, step]))

    def batch(self, rows: npt.NDArray[np.int64]) -> TokenBatch:
        """The observations ``rows``, each with the first state of its trajectory."""
        return self._batch(rows, None)

    def _batch(self, rows: npt.NDArray[np.int64], generator: np.random.Generator | None) -> TokenBatch:
        found = [self._trajectories.of(int(row)) for row in rows]
        guesses = np.stack([self._drawn(states, generator) if generator else states[0] for states in found])
        tokens = np.stack([states[-1] for states in found])
        device = self._encoded.device
        return TokenBatch(
            self._encoded.prefix(rows),
            torch.from_numpy(tokens.astype(np.int64)).to(device),
            torch.from_numpy(guesses.astype(np.int64)).to(device),
        )

    def _drawn(self, states: States, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """A state to learn from: of a trajectory, all but the last are as likely."""
        share = generator.random() - self._recipe.repeated_guesses
        if share < 0:
            return np.full(states.shape[1], self._layers.first)
        if share < self._recipe.fresh_guesses:
            return np.asarray(generator.integers(0, self._layers.vocabulary, states.shape[1]))
        return np.asarray(states[generator.integers(max(len(states) - 1, 1))], np.int64)
