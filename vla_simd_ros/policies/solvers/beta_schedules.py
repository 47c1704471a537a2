"""How much noise each diffusion step adds: the schedules that policies are trained with.

Every value is rounded to float32 where the training framework rounds it, so that a sampler reads the same
tables; square roots and exponentials are correctly rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
AlphaBar = Callable[[float], float]

_MOST_BETA = 0.999


def betas(schedule: str, count: int, first: float, last: float) -> F32:
    """The variance of the noise that each of ``count`` steps adds, for one of ``SCHEDULES``.

    ``first`` and ``last`` are those of the first and the last step, as far as the schedule leaves them open.
    """
    return SCHEDULES[schedule](count, first, last)


def products_of_alphas(betas: F32) -> F32:
    """How much of the signal's variance is left after each step: the products of 1 - beta up to it."""
    alphas = np.float32(1) - betas
    return np.cumprod(alphas.astype(np.float64)).astype(np.float32)


def _linear(count: int, first: float, last: float) -> F32:
    return _line(count, first, last)


def _scaled_linear(count: int, first: float, last: float) -> F32:
    """Linear in the standard deviation."""
    values: F32 = np.square(_line(count, first**0.5, last**0.5))
    return values


def _sigmoid(count: int, first: float, last: float) -> F32:
    logistic = (1 / (1 + np.exp(-_line(count, -6.0, 6.0).astype(np.float64)))).astype(np.float32)
    values: F32 = logistic * np.float32(last - first) + np.float32(first)
    return values


def _cosine(count: int, first: float, last: float) -> F32:
    return _of_signal(count, lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2)


def _laplace(count: int, first: float, last: float) -> F32:
    def signal(t: float) -> float:
        ratio = math.exp(-0.5 * math.copysign(1, 0.5 - t) * math.log(1 - 2 * abs(0.5 - t) + 1e-6))
        return math.sqrt(ratio / (1 + ratio))

    return _of_signal(count, signal)


def _line(count: int, first: float, last: float) -> F32:
    """Evenly spaced values, counted from the nearer end and rounded once."""
    start, end = np.float32(first), np.float32(last)
    step = np.float64((end - start) / np.float32(count - 1)) if count > 1 else np.float64(0)
    index = np.arange(count)
    rising = np.float64(start) + step * index
    falling = np.float64(end) - step * (count - 1 - index)
    values: F32 = np.where(index < max(count // 2, 1), rising, falling).astype(np.float32)
    return values


def _of_signal(count: int, left: AlphaBar) -> F32:
    """The betas after which the part ``left(t)`` of the signal's variance is left at time t, from 0 to 1."""
    values = (1 - left((i + 1) / count) / left(i / count) for i in range(count))
    return np.array([min(value, _MOST_BETA) for value in values], np.float32)


SCHEDULES: dict[str, Callable[[int, float, float], F32]] = {
    "linear": _linear,
    "scaled_linear": _scaled_linear,
    "squaredcos_cap_v2": _cosine,
    "sigmoid": _sigmoid,
    "laplace": _laplace,
}
