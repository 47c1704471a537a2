"""Jacobi trajectories of a teacher."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import token_doubles as doubles
from demonstration_doubles import Memory

from vla_simd_ros.checkpoints import load_checkpoint
from vla_simd_ros.checkpoints.synthesis import Camera, Options, make_checkpoint
from vla_simd_ros.inference import Policy
from vla_simd_ros.training.demonstrations import DataError, Demonstrations, read_demonstrations
from vla_simd_ros.training.harvest import first_guess, guess_seed, harvest, observation
from vla_simd_ros.training.trajectories import Trajectories, TrajectoryStore

if TYPE_CHECKING:
    from pytest import MonkeyPatch, TempPathFactory

SIZES = {name: size for name, size in doubles.SIZES.items() if name != "decoder_layers"} | {"chunk_size": 4}
SETTINGS = {name: value for name, value in doubles.ENCODER.items() if "vae" not in name}
SETTINGS |= {name: doubles.SETTINGS[name] for name in ("action_bins", "token_width", "n_token_layers")}
SETTINGS |= {"token_heads": 2, "token_kv_heads": 1, "token_feedforward": 16}
COUNT, VOCABULARY = 8, 17


@pytest.fixture(scope="module")
def folder(tmp_path_factory: TempPathFactory) -> Path:
    """A teacher with random weights, whose trajectories are long."""
    folder = tmp_path_factory.mktemp("harvest") / "teacher"
    cameras = tuple(Camera(name, 32, 48) for name in ("front", "wrist"))
    options = Options(seed=3, cameras=cameras, state_dim=2, action_dim=2, sizes=SIZES, settings=SETTINGS)
    make_checkpoint("impact_tokens", folder, options)
    return folder


@pytest.fixture(scope="module")
def teacher(folder: Path) -> Iterator[Policy]:
    policy = Policy.load(folder)
    yield policy
    policy.close()


@pytest.fixture
def data(tmp_path: Path) -> Demonstrations:
    return read_demonstrations(Memory(), tmp_path / "frames", lambda text: None, stride=2)


def harvested(teacher: Policy, data: Demonstrations, folder: Path) -> Trajectories:
    store = TrajectoryStore(folder, {"teacher": "t", "seed": 5})
    return harvest(teacher, data, np.arange(len(data.seen)), store, seed=5, say=lambda text: None)


def test_trajectories_end_in_the_greedy_tokens(teacher: Policy, data: Demonstrations, tmp_path: Path) -> None:
    found = harvested(teacher, data, tmp_path / "t")
    assert found.rows.tolist() == list(range(12))
    lengths = [len(found.of(row)) for row in range(12)]
    assert max(lengths) > 3 and found.mean_states == np.mean(lengths)
    teacher.set_decoder("autoregressive")
    for row in range(12):
        teacher.set_instruction(data.tasks[data.task[data.seen[row]]])
        decoded = teacher.query(observation(data, row)).decoded
        assert decoded is not None
        assert found.of(row)[-1].tolist() == list(decoded.tokens)


def test_trajectories_begin_with_a_guess_of_all_tokens(
    teacher: Policy, data: Demonstrations, tmp_path: Path
) -> None:
    found = harvested(teacher, data, tmp_path / "t")
    assert teacher.action_tokens is not None
    firsts = np.stack([found.of(row)[0] for row in range(12)])
    for row, first in enumerate(firsts):
        assert first.tolist() == first_guess(guess_seed(5, row), teacher.action_tokens).tolist()
    assert firsts.shape == (12, COUNT) and len(np.unique(firsts)) > VOCABULARY // 2
    assert firsts.max() < VOCABULARY
    assert guess_seed(5, 1) != guess_seed(6, 1)


@pytest.mark.needs_torch
def test_each_state_is_what_a_pass_of_the_network_makes_of_the_one_before(
    teacher: Policy, folder: Path, data: Demonstrations, tmp_path: Path
) -> None:
    import torch

    from vla_simd_ros.checkpoints.processors import read_statistics
    from vla_simd_ros.training.batches import Batches
    from vla_simd_ros.training.impact_predictor import load_weights, stored_weights
    from vla_simd_ros.training.impact_tokens import ImpactTokensConfig, ImpactTokensPolicy
    from vla_simd_ros.training.recipe import TokenRecipe
    from vla_simd_ros.training.sentences import encode_sentences

    checkpoint = load_checkpoint(folder)
    weights, text = stored_weights(checkpoint)
    network = ImpactTokensPolicy(ImpactTokensConfig.from_json(checkpoint.config, text))
    load_weights(network, weights, checkpoint)
    network.eval()
    texts = encode_sentences(network.model, checkpoint.tokenizer(), data.tasks)
    every = frozenset(data.episodes)
    batches = Batches(data, every, read_statistics(folder), TokenRecipe(), 4, texts, torch.device("cpu"))
    found = harvested(teacher, data, tmp_path / "t")
    for row in range(12):
        prefix = network.prefix(batches.batch(np.array([row])).inputs)
        states = torch.from_numpy(found.of(row).astype(np.int64))
        with torch.no_grad():
            kept = network.model.tokens.read_prefix(prefix.rows, prefix.there)
            passes = network.model.tokens.score_chunks(states, kept.repeated(len(states))).argmax(-1)
        for place, (before, after) in enumerate(pairwise(states.tolist())):
            assert before != after == passes[place].tolist()
        assert passes[-1].tolist() == states[-1].tolist()


def test_what_was_harvested_stays_and_the_rest_is_as_it_would_have_been(
    teacher: Policy, data: Demonstrations, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr("vla_simd_ros.training.harvest.PART", 5)
    whole = harvested(teacher, data, tmp_path / "whole")
    half = tmp_path / "half"
    harvested(teacher, data, half)
    (half / "part-00001.npz").unlink()
    kept = (half / "part-00000.npz").stat().st_mtime_ns
    again = harvested(teacher, data, half)
    assert (half / "part-00000.npz").stat().st_mtime_ns == kept
    for row in range(12):
        np.testing.assert_array_equal(whole.of(row), again.of(row))


def test_a_folder_of_other_trajectories_is_refused(tmp_path: Path) -> None:
    TrajectoryStore(tmp_path, {"teacher": "one", "seed": 0})
    TrajectoryStore(tmp_path, {"teacher": "one", "seed": 0})
    with pytest.raises(DataError, match=r"trajectories.json: teacher is 'one', expected 'two'"):
        TrajectoryStore(tmp_path, {"teacher": "two", "seed": 0})
