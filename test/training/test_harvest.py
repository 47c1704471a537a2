"""Jacobi trajectories of a teacher."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from vla_simd_ros.training.encoded import Encoded
    from vla_simd_ros.training.token_layers import TokenLayers
    from vla_simd_ros.training.trajectories import Trajectories

pytestmark = pytest.mark.needs_torch

COUNT, OBSERVATIONS = 9, 12


@pytest.fixture
def layers() -> TokenLayers:
    import torch

    from vla_simd_ros.training.token_layers import TokenConfig, TokenLayers

    torch.manual_seed(1)
    sizes: dict[str, Any] = {"token_width": 16, "n_token_layers": 2, "token_heads": 2, "token_kv_heads": 2}
    network = TokenLayers(TokenConfig(**sizes, token_feedforward=16, action_bins=12), 6, 3)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return network


@pytest.fixture
def encoded() -> Encoded:
    import torch

    from vla_simd_ros.training.encoded import Encoded

    generator = np.random.default_rng(0)
    rows = generator.normal(size=(OBSERVATIONS, 4, 6)).astype(np.float16)
    there = torch.tensor([[True] * 4, [True, True, True, False]])
    return Encoded(rows, there, np.arange(OBSERVATIONS) % 2, torch.device("cpu"))


def harvested(
    layers: TokenLayers, encoded: Encoded, folder: Path, said: list[str] | None = None
) -> Trajectories:
    from vla_simd_ros.training.harvest import harvest
    from vla_simd_ros.training.trajectories import TrajectoryStore

    say = (lambda text: None) if said is None else said.append
    store = TrajectoryStore(folder, {"teacher": "t", "seed": 5})
    rows = np.arange(OBSERVATIONS)
    return harvest(layers, encoded, rows, store, count=COUNT, seed=5, say=say)


def greedy(layers: TokenLayers, encoded: Encoded, row: int) -> list[int]:
    """One token after the other, each from all before it, computed anew."""
    import torch

    prefix = encoded.prefix(np.array([row]))
    tokens = [layers.config.first]
    with torch.no_grad():
        kept = layers.read_prefix(prefix.rows, prefix.there)
        while len(tokens) <= COUNT:
            scores = layers.read_tokens(torch.tensor([tokens]), kept)[0, -1]
            tokens.append(int(scores.argmax()))
    return tokens[1:]


def test_trajectories_end_in_the_greedy_tokens(layers: TokenLayers, encoded: Encoded, tmp_path: Path) -> None:
    found = harvested(layers, encoded, tmp_path)
    assert found.rows.tolist() == list(range(OBSERVATIONS))
    lengths = [len(found.of(row)) for row in range(OBSERVATIONS)]
    assert max(lengths) > 3 and found.mean_passes == np.mean(lengths)
    for row in range(OBSERVATIONS):
        assert found.of(row)[-1].tolist() == greedy(layers, encoded, row)


def test_each_state_is_what_a_pass_makes_of_the_one_before(
    layers: TokenLayers, encoded: Encoded, tmp_path: Path
) -> None:
    import torch

    found = harvested(layers, encoded, tmp_path)
    for row in range(OBSERVATIONS):
        prefix, states = encoded.prefix(np.array([row])), found.of(row).astype(np.int64)
        with torch.no_grad():
            kept = layers.read_prefix(prefix.rows, prefix.there)
        for before, after in pairwise(states):
            assert (before != after).any()
            with torch.no_grad():
                scores = layers.score_chunks(torch.from_numpy(before[None]), kept)
            assert scores[0].argmax(-1).tolist() == after.tolist()
        assert states.min() >= 0 and states.max() < layers.config.vocabulary


def test_what_was_harvested_stays_and_the_rest_is_as_it_would_have_been(
    layers: TokenLayers, encoded: Encoded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vla_simd_ros.training import harvest as module

    monkeypatch.setattr(module, "PART", 5)
    whole = harvested(layers, encoded, tmp_path / "whole")
    half = tmp_path / "half"
    harvested(layers, encoded, half)
    (half / "part-00001.npz").unlink()
    kept = (half / "part-00000.npz").stat().st_mtime_ns
    again = harvested(layers, encoded, half)
    assert (half / "part-00000.npz").stat().st_mtime_ns == kept
    for row in range(OBSERVATIONS):
        np.testing.assert_array_equal(whole.of(row), again.of(row))


def test_guesses_follow_from_the_seed_and_the_observation() -> None:
    from vla_simd_ros.training.harvest import first_guesses

    every = first_guesses(np.arange(6), 20, 9, seed=1)
    np.testing.assert_array_equal(every[4:], first_guesses(np.arange(4, 6), 20, 9, seed=1))
    assert (every != first_guesses(np.arange(6), 20, 9, seed=2)).any()
    assert (every.min(), every.max()) == (0, 8)


def test_a_folder_of_other_trajectories_is_refused(tmp_path: Path) -> None:
    from vla_simd_ros.training.demonstrations import DataError
    from vla_simd_ros.training.trajectories import TrajectoryStore

    TrajectoryStore(tmp_path, {"teacher": "one", "seed": 0})
    TrajectoryStore(tmp_path, {"teacher": "one", "seed": 0})
    with pytest.raises(DataError, match=r"trajectories.json: teacher is 'one', expected 'two'"):
        TrajectoryStore(tmp_path, {"teacher": "two", "seed": 0})
