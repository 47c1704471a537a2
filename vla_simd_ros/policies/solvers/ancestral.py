"""Ancestral sampling of a diffusion model that predicts noise, as Octo does it.

Each step takes out some of the predicted noise and puts in less new noise, none in the last one. The network
is told the time by Fourier features, and every step that it was trained with is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from vla_simd_ros.graph.ir import Array
from vla_simd_ros.policies.solvers.beta_schedules import betas, products_of_alphas

_ONE = np.float32(1)


class AncestralSolver:
    """The STEP inputs of each denoising step; see `policies.base.Solver`.

    ``time_features`` [1, 2 * frequencies] are cosines and sines; of the vectors of one number, the step
    subtracts ``noise_share`` of the predicted noise, multiplies by ``gain``, and adds ``deviation`` times
    new noise. ``level`` is the deviation of the noise in what the step arrives at.
    """

    noise_per_step = True

    def __init__(self, steps: int, sample_shape: tuple[int, int], frequencies: Array) -> None:
        self.default_steps = steps
        self.sample_shape = sample_shape
        self._frequencies = frequencies.astype(np.float64)

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the STEP inputs that :meth:`steps` gives."""
        numbers = dict.fromkeys(("noise_share", "gain", "deviation", "level"), (1,))
        return {"time_features": (1, 2 * len(self._frequencies)), **numbers}

    def steps(self, count: int) -> Sequence[Mapping[str, Array]]:
        """The steps from pure noise to none."""
        if count != self.default_steps:
            raise ValueError(f"expected {self.default_steps}, the steps that the network was trained with")
        schedule = betas("squaredcos_cap_v2", count, 0, 0)
        kept = products_of_alphas(schedule)
        return [self._step(time, schedule[time], kept[time]) for time in reversed(range(count))]

    def _step(self, time: int, beta: np.float32, kept: np.float32) -> dict[str, Array]:
        """The numbers in float32, in which the networks were trained and are sampled."""
        angle = 2 * math.pi * time * self._frequencies
        features = np.concatenate([np.cos(angle), np.sin(angle)])[None].astype(np.float32)
        level = np.sqrt(_ONE - kept)
        alpha = _ONE - beta
        numbers = {
            "noise_share": (_ONE - alpha) / level,
            "gain": _ONE / np.sqrt(alpha),
            "deviation": np.sqrt(beta) if time else np.float32(0),
            "level": level,
        }
        return {"time_features": features, **{name: np.full(1, value) for name, value in numbers.items()}}
