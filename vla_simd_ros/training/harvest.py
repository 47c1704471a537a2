"""Harvesting: a teacher decodes its observations by Jacobi iteration, and every state is kept.

The engine decodes: it computes no token twice that is certain already, and the fixed points are those of the
policy as it runs on the robot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vla_simd_ros.decoding.base import Decoded
from vla_simd_ros.inference import Query
from vla_simd_ros.observation import Observation
from vla_simd_ros.policies.base import ActionTokens
from vla_simd_ros.training.demonstrations import Demonstrations
from vla_simd_ros.training.trajectories import States, Trajectories, TrajectoryStore

PART = 256
_PROGRESS_S = 4.0


class Teacher(Protocol):
    """What is used of a :class:`vla_simd_ros.inference.Policy` that spells its actions in tokens."""

    @property
    def action_tokens(self) -> ActionTokens | None: ...

    def set_instruction(self, text: str) -> float: ...

    def set_decoder(self, decoder: str, *, initialization: str, decoder_seed: int) -> None: ...

    def query(self, observation: Observation) -> Query: ...


def harvest(
    teacher: Teacher,
    data: Demonstrations,
    rows: npt.NDArray[np.int64],
    store: TrajectoryStore,
    *,
    seed: int,
    say: Callable[[str], None],
) -> Trajectories:
    """Trajectories for the observations ``rows`` of ``data``; parts that are stored stay.

    The first state is random, of all tokens that there are; it depends on the seed and the observation alone.
    """
    parts = [rows[start : start + PART] for start in range(0, len(rows), PART)]
    began = last_said = time.monotonic()
    told = -1
    for number, part in enumerate(parts):
        if store.has(number):
            continue
        found = []
        for row in part:
            task = int(data.task[data.seen[row]])
            if task != told:
                teacher.set_instruction(data.tasks[task])
                told = task
            found.append(trajectory(teacher, observation(data, int(row)), guess_seed(seed, int(row))))
            if time.monotonic() - last_said > _PROGRESS_S:
                last_said = time.monotonic()
                say(f"harvested {number * PART + len(found)} of {len(rows)} trajectories")
        store.add(number, part, found)
    trajectories = store.read(len(parts))
    say(
        f"{len(rows)} trajectories of {trajectories.mean_states:.1f} states on average, "
        f"{time.monotonic() - began:.0f} s"
    )
    return trajectories


def trajectory(teacher: Teacher, seen: Observation, seed: int) -> States:
    """The states from a random guess to the fixed point, each once."""
    tokens = teacher.action_tokens
    assert tokens is not None
    teacher.set_decoder("jacobi", initialization="random", decoder_seed=seed)
    decoded = teacher.query(seen).decoded
    assert decoded is not None
    return _states(first_guess(seed, tokens), decoded)


def first_guess(seed: int, tokens: ActionTokens) -> npt.NDArray[np.int64]:
    """The guess that the decoder begins with."""
    return np.random.default_rng(seed).integers(0, tokens.vocabulary, tokens.count)


def guess_seed(seed: int, row: int) -> int:
    """Of an observation's first guess."""
    return int(np.random.SeedSequence([seed, 4, row]).generate_state(1)[0])


def observation(data: Demonstrations, row: int) -> Observation:
    """What was seen at an observation."""
    images = {camera: np.ascontiguousarray(images[row]) for camera, images in data.images.items()}
    return Observation(images, data.state[data.seen[row]])


def _states(guess: npt.NDArray[np.int64], decoded: Decoded) -> States:
    states: Sequence[Any] = [guess, *(np.array(one.state) for one in decoded.passes)]
    changed = [after for before, after in pairwise(states) if (before != after).any()]
    return np.stack([guess, *changed]).astype(np.uint16)
