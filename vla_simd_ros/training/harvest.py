"""Harvesting: a teacher decodes its observations by Jacobi iteration, and every state is kept."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vla_simd_ros.training.encoded import Encoded
from vla_simd_ros.training.token_layers import Kept, TokenLayers
from vla_simd_ros.training.trajectories import States, Trajectories, TrajectoryStore

PART = 512
_PROGRESS_S = 4.0


def harvest(
    layers: TokenLayers,
    encoded: Encoded,
    rows: npt.NDArray[np.int64],
    store: TrajectoryStore,
    *,
    count: int,
    seed: int,
    say: Callable[[str], None],
) -> Trajectories:
    """Trajectories of ``count`` tokens for the observations ``rows``; parts that are stored stay.

    The first state is random, of all tokens that there are; it depends on the seed and the observation alone.
    """
    parts = [rows[start : start + PART] for start in range(0, len(rows), PART)]
    began = last_said = time.monotonic()
    for number, part in enumerate(parts):
        if store.has(number):
            continue
        guesses = first_guesses(part, count, layers.config.vocabulary, seed)
        prefix = encoded.prefix(part)
        with torch.no_grad():
            kept = layers.read_prefix(prefix.rows, prefix.there)
            found = jacobi(layers, kept, torch.from_numpy(guesses).to(encoded.device))
        store.add(number, part, found)
        if time.monotonic() - last_said > _PROGRESS_S:
            last_said = time.monotonic()
            say(f"harvested {number * PART + len(part)} of {len(rows)} trajectories")
    trajectories = store.read(len(parts))
    say(
        f"{len(rows)} trajectories of {trajectories.mean_passes:.1f} passes on average, "
        f"{time.monotonic() - began:.0f} s"
    )
    return trajectories


def first_guesses(
    rows: npt.NDArray[np.int64], count: int, vocabulary: int, seed: int
) -> npt.NDArray[np.int64]:
    """A random state of ``count`` tokens for each observation."""
    return np.stack(
        [np.random.default_rng([seed, 4, int(row)]).integers(0, vocabulary, count) for row in rows]
    )


@torch.no_grad()
def jacobi(layers: TokenLayers, kept: Kept, guesses: Tensor) -> list[States]:
    """The states of each of ``guesses`` [B, n] up to its fixed point, each once."""
    trajectories = [[state] for state in _stored(guesses)]
    going, states = torch.arange(len(guesses), device=guesses.device), guesses
    while len(going):
        corrected = layers.score_chunks(states, kept).argmax(-1)
        changed = (corrected != states).any(1)
        going, states, kept = going[changed], corrected[changed], kept.of(changed)
        for place, state in zip(going.tolist(), _stored(states), strict=True):
            trajectories[place].append(state)
    return [np.stack(trajectory) for trajectory in trajectories]


def _stored(states: Tensor) -> States:
    return states.cpu().numpy().astype(np.uint16)
