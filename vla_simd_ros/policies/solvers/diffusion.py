"""Denoising step by step: the samplers of DDPM (arXiv 2006.11239) and DDIM (arXiv 2010.02502).

A step computes, from the network's prediction for the sample x at time t,

    x0 = (x - sqrt(1 - a) * noise) / sqrt(a)     the clean sample; or the prediction itself
    next = c * clip(x0) + d * x + s * z          DDPM, z the noise of this step
    next = c * clip(x0) + d * noise              DDIM

with a the product of alphas up to t. The graph has the arithmetic, every number that depends on t is an input
of the step: one graph serves every number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime, Tensor
from vla_simd_ros.policies.solvers.beta_schedules import betas, products_of_alphas

DDPM, DDIM = "DDPM", "DDIM"
EPSILON, SAMPLE = "epsilon", "sample"
_ONE = np.float32(1)
_LEAST_VARIANCE = np.float32(1e-20)


@dataclass(frozen=True)
class DiffusionProcess:
    """How the policy was trained to be noised, and what it predicts.

    ``schedule`` is one of beta_schedules.SCHEDULES, ``prediction`` EPSILON (the noise) or SAMPLE (the clean
    sample); clean samples lie within ``clip`` of 0, where it is given.
    """

    train_steps: int
    schedule: str
    beta_start: float
    beta_end: float
    prediction: str
    clip: float | None


class DiffusionSolver:
    """A sampler of ``kind`` DDPM or DDIM (the deterministic one); see `policies.base.Solver`."""

    def __init__(
        self, kind: str, process: DiffusionProcess, default_steps: int, sample_shape: tuple[int, int]
    ) -> None:
        self.default_steps = default_steps
        self.sample_shape = sample_shape
        self.noise_per_step = kind == DDPM
        self._kind = kind
        self._process = process
        self._range = (
            [] if process.clip is None else [np.array([c], np.float32) for c in (process.clip, -process.clip)]
        )
        schedule = process.schedule, process.train_steps, process.beta_start, process.beta_end
        self._alphas = products_of_alphas(betas(*schedule))

    def steps(self, count: int) -> Sequence[Mapping[str, Array]]:
        """The time and the coefficients of each of ``count`` steps. ValueError for a count it cannot do."""
        if not 1 <= count <= self._process.train_steps:
            raise ValueError(f"{count} solver steps, expected 1 to {self._process.train_steps}")
        stride = self._process.train_steps // count
        coefficients = self._ddpm if self._kind == DDPM else self._ddim
        return [
            {
                "timestep": np.array([time], np.int32),
                "coefficients": np.array(coefficients(time, time - stride), np.float32),
            }
            for time in range((count - 1) * stride, -1, -stride)
        ]

    @property
    def train_steps(self) -> int:
        """One more than the latest time."""
        return self._process.train_steps

    def times(self, b: Builder) -> Tensor:
        """The STEP input ``timestep``, int32 [1]."""
        return b.input("timestep", (1,), DType.I32, Lifetime.STEP)

    def sample(self, b: Builder) -> Tensor:
        """The STEP input ``sample``."""
        return b.input("sample", self.sample_shape, DType.F32, Lifetime.STEP)

    def advance(self, b: Builder, sample: Tensor, prediction: Tensor) -> Tensor:
        """The next sample, from this one and what the network predicts for it."""
        count = 5 if self.noise_per_step else 4
        given = b.input("coefficients", (count,), DType.F32, Lifetime.STEP)
        noise_part, signal_part, to_clean, to_other, *spread = (
            b.slice(given, axis=0, start=index, stop=index + 1, name=f"coefficient{index}")
            for index in range(count)
        )
        clean, noise = prediction, prediction
        if self._process.prediction == EPSILON:
            noisy = b.binary("mul", prediction, noise_part, name="noise_part")
            clean = b.binary("div", b.binary("sub", sample, noisy, name="signal"), signal_part, name="clean")
        elif not self.noise_per_step:
            signal = b.binary("mul", prediction, signal_part, name="signal_part")
            noise = b.binary("div", b.binary("sub", sample, signal, name="rest"), noise_part, name="noise")
        other = sample if self.noise_per_step else noise
        following = b.add(
            b.binary("mul", self._clipped(b, clean), to_clean, name="towards_clean"),
            b.binary("mul", other, to_other, name="of_other"),
            name="mean" if spread else "next",
        )
        if not spread:
            return following
        drawn = b.input("step_noise", self.sample_shape, DType.F32, Lifetime.STEP)
        return b.add(following, b.binary("mul", drawn, spread[0], name="spread"), name="next")

    def _clipped(self, b: Builder, clean: Tensor) -> Tensor:
        if not self._range:
            return clean
        most, least = (b.constant(f"clip.{value[0]:g}", value) for value in self._range)
        return b.binary("max", b.binary("min", clean, most, name="at_most"), least, name="clipped")

    def _left(self, time: int) -> np.float32:
        """The product of alphas up to ``time``; nothing is lost before the first step."""
        left: np.float32 = self._alphas[time] if time >= 0 else _ONE
        return left

    def _ddpm(self, time: int, before: int) -> tuple[np.float32, ...]:
        """Parts of noise and signal in the sample, then the posterior's mean and deviation (equation 7)."""
        left, left_before = self._left(time), self._left(before)
        lost, lost_before = _ONE - left, _ONE - left_before
        alpha = left / left_before
        variance = max(lost_before / lost * (_ONE - alpha), _LEAST_VARIANCE)
        return (
            np.sqrt(lost),
            np.sqrt(left),
            np.sqrt(left_before) * (_ONE - alpha) / lost,
            np.sqrt(alpha) * lost_before / lost,
            np.sqrt(variance) if time > 0 else np.float32(0),
        )

    def _ddim(self, time: int, before: int) -> tuple[np.float32, ...]:
        """Parts of noise and signal in the sample, then those in the next one (equation 12, sigma 0)."""
        left, left_before = self._left(time), self._left(before)
        return np.sqrt(_ONE - left), np.sqrt(left), np.sqrt(left_before), np.sqrt(_ONE - left_before)
