"""Ancestral sampling of a diffusion model that predicts noise, as Octo does it.

A step takes some of the predicted noise out of the sample x, puts new noise z in, none in the last one, and
clips:

    next = clip((x - share * noise) * gain + deviation * z)

Every step that the network was trained with is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.policies.solvers.beta_schedules import betas, products_of_alphas

_ONE = np.float32(1)
_COEFFICIENTS = ("share", "gain", "deviation", "level")


class AncestralSolver:
    """The steps of a policy trained with ``steps`` of them; see `policies.base.Solver`.

    Values of a sample stay within ``bound`` of 0. Of its columns the first ``used`` are denoised; the others,
    which a robot of fewer joints does not have, hold the noise that they held in training.
    """

    noise_per_step = True

    def __init__(self, steps: int, sample_shape: tuple[int, int], used: int, bound: float) -> None:
        self.default_steps = steps
        self.sample_shape = sample_shape
        self._used = used
        self._range = [np.array([limit], np.float32) for limit in (-bound, bound)]

    def steps(self, count: int) -> Sequence[Mapping[str, Array]]:
        """The time and the coefficients of each step, from pure noise to none."""
        if count != self.default_steps:
            raise ValueError(f"expected {self.default_steps}, the steps that the network was trained with")
        schedule = betas("squaredcos_cap_v2", count, 0, 0)
        kept = products_of_alphas(schedule)
        return [
            {
                "timestep": np.array([time], np.int32),
                "coefficients": np.array(_coefficients(time, schedule[time], kept[time]), np.float32),
            }
            for time in reversed(range(count))
        ]

    def times(self, b: Builder) -> Tensor:
        """The STEP input ``timestep``, int32 [1]."""
        return b.input("timestep", (1,), DType.I32, Lifetime.STEP)

    def sample(self, b: Builder) -> Tensor:
        """The STEP input ``sample``."""
        return b.input("sample", self.sample_shape, DType.F32, Lifetime.STEP)

    def advance(self, b: Builder, sample: Tensor, noise: Tensor) -> Tensor:
        """The next sample, from this one and the ``noise`` that the network finds in it."""
        drawn = b.input("step_noise", self.sample_shape, DType.F32, Lifetime.STEP)
        given = b.input("coefficients", (len(_COEFFICIENTS),), DType.F32, Lifetime.STEP)
        share, gain, deviation, level = (
            b.slice(given, axis=0, start=index, stop=index + 1, name=name)
            for index, name in enumerate(_COEFFICIENTS)
        )
        x = b.binary("sub", sample, b.binary("mul", noise, share, name="taken"), name="less")
        x = b.binary("mul", x, gain, name="scaled")
        x = b.add(x, b.binary("mul", drawn, deviation, name="new"), name="noisy")
        least, most = (b.constant(f"clip.{value[0]:g}", value) for value in self._range)
        x = b.binary("max", b.binary("min", x, most, name="at_most"), least, name="clipped")
        width = sample.shape[1]
        if self._used == width:
            return x
        unused = b.slice(drawn, axis=1, start=self._used, stop=width, name="unused.drawn")
        unused = b.binary("mul", unused, level, name="unused")
        return b.concat(
            [b.slice(x, axis=1, start=0, stop=self._used, name="used"), unused], axis=1, name="next"
        )


def _coefficients(time: int, beta: np.float32, kept: np.float32) -> tuple[np.float32, ...]:
    """In float32, in which the networks are trained and sampled; the last is the deviation of the noise in
    what the step arrives at."""
    level = np.sqrt(_ONE - kept)
    alpha = _ONE - beta
    return (_ONE - alpha) / level, _ONE / np.sqrt(alpha), np.sqrt(beta) if time else np.float32(0), level
