"""What a student is given to learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytestmark = pytest.mark.needs_torch

BINS, COUNT, ROWS = 9, 6, 40


def source(tmp_path: Path, **shares: Any) -> Any:
    """Batches of observations whose trajectories have three states: of 1, of 2, and of 3 at the end."""
    import torch

    from vla_simd_ros.training.encoded import Encoded
    from vla_simd_ros.training.recipe import TokenRecipe
    from vla_simd_ros.training.token_batches import TeacherTokens
    from vla_simd_ros.training.token_layers import TokenConfig
    from vla_simd_ros.training.trajectories import TrajectoryStore

    store = TrajectoryStore(tmp_path / "t", {})
    states = np.stack([np.full(COUNT, value, np.uint16) for value in (1, 2, 3)])
    store.add(0, np.arange(ROWS), [states] * ROWS)
    encoded = Encoded(
        np.arange(ROWS * 2, dtype=np.float16).reshape(ROWS, 2, 1),
        torch.tensor([[True, True], [True, False]]),
        np.arange(ROWS) % 2,
        torch.device("cpu"),
    )
    recipe = TokenRecipe(batch_size=ROWS, **shares)
    layers = TokenConfig(action_bins=BINS)
    return TeacherTokens(encoded, store.read(1), layers, np.arange(ROWS), recipe)


def drawn(tmp_path: Path, **shares: Any) -> npt.NDArray[np.int64]:
    """The guesses of some batches."""
    tokens = source(tmp_path, **shares)
    batches = [tokens.training(step) for step in range(8)]
    assert all((batch.tokens == 3).all() for batch in batches)
    return np.concatenate([batch.guesses.numpy() for batch in batches])


def test_guesses_are_of_the_kinds_that_are_asked_for(tmp_path: Path) -> None:
    states = drawn(tmp_path, fresh_guesses=0.0, repeated_guesses=0.0)
    assert 0.4 < (states == 1).all(1).mean() < 0.6 and 0.4 < (states == 2).all(1).mean() < 0.6
    repeated = drawn(tmp_path, fresh_guesses=0.0, repeated_guesses=1.0)
    assert (repeated == BINS).all()
    fresh = drawn(tmp_path, fresh_guesses=1.0, repeated_guesses=0.0)
    assert np.unique(fresh).tolist() == list(range(BINS + 1))
    assert len(np.unique(fresh, axis=0)) > 0.99 * len(fresh)


def test_shares_of_guesses_are_kept(tmp_path: Path) -> None:
    guesses = drawn(tmp_path, fresh_guesses=0.25, repeated_guesses=0.5)
    constant = (guesses == guesses[:, :1]).all(1)
    assert 0.42 < (constant & (guesses[:, 0] == BINS)).mean() < 0.58
    assert 0.18 < (constant & (guesses[:, 0] < BINS)).mean() < 0.32


def test_a_step_says_what_is_drawn(tmp_path: Path) -> None:
    import torch

    one, two = source(tmp_path / "1"), source(tmp_path / "2")
    for step in (3, 0, 3):
        assert torch.equal(one.training(step).guesses, two.training(step).guesses)
    assert not torch.equal(one.training(0).guesses, one.training(1).guesses)
    assert torch.equal(one.batch(np.array([5, 2])).guesses, torch.ones(2, COUNT, dtype=torch.int64))


def test_prefixes_are_those_of_the_observations(tmp_path: Path) -> None:
    prefix = source(tmp_path).batch(np.array([5, 2, 7])).prefix
    assert prefix.rows[:, :, 0].tolist() == [[10, 11], [4, 5], [14, 15]]
    assert prefix.there.tolist() == [[True, False], [True, True], [True, False]]
