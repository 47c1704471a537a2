"""Delays to add to a system under test: a distribution named in a short text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vla_simd_ros.control.latency_trace import read_trace
from vla_simd_ros.control.schedule import Seconds, SupplyError

FORMS = "fixed:MS, lognormal:MEDIAN_MS,SIGMA or trace:FILE"

_MS = 1e-3
_LONGEST_MS = 60_000.0
_WIDEST_SIGMA = 3.0


@dataclass(frozen=True)
class DelayDistribution:
    """Independent delays in seconds.

    Attributes:
        text: what it was made of.
    """

    text: str
    _draw: Callable[[np.random.Generator, int], Seconds]

    def draw(self, rng: np.random.Generator, count: int) -> Seconds:
        """So many delays; none is longer than a minute."""
        return np.minimum(self._draw(rng, count), _LONGEST_MS * _MS)


def delay_distribution(text: str) -> DelayDistribution:
    """The distribution that a text names: `FORMS`, milliseconds.

    Raises:
        SupplyError: the text names none, or a trace that cannot be read.
    """
    kind, _, rest = text.partition(":")
    if kind == "trace" and rest:
        return _trace(text, Path(rest))
    numbers = _numbers(rest)
    if kind == "fixed" and len(numbers) == 1 and 0.0 <= numbers[0] <= _LONGEST_MS:
        delay = numbers[0] * _MS
        return DelayDistribution(text, lambda rng, count: np.full(count, delay))
    if kind == "lognormal" and len(numbers) == 2:
        median, sigma = numbers
        if 0.0 < median <= _LONGEST_MS and 0.0 <= sigma <= _WIDEST_SIGMA:
            mu = math.log(median * _MS)
            return DelayDistribution(text, lambda rng, count: rng.lognormal(mu, sigma, count))
    raise SupplyError(
        f"'{text}' is no distribution of delays, expected {FORMS}; delays of at most {_LONGEST_MS:g} ms, "
        f"sigma of at most {_WIDEST_SIGMA:g}"
    )


def _trace(text: str, path: Path) -> DelayDistribution:
    try:
        sample = read_trace(path)
    except OSError as error:
        raise SupplyError(f"'{text}': {error.strerror or error}") from None
    return DelayDistribution(text, lambda rng, count: rng.choice(sample, count))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return []
