"""Flow matching: Euler steps along a learned velocity from noise (time 1) to actions (time 0)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.ir import Array
from vla_simd_ros.policies.base import Guidance

SCHEDULES = ("LINEAR", "EXP", "ONES", "ZEROS")
"""How the weights of a prefix fall from its frozen rows on; see :meth:`FlowMatching.prefix_weights`."""
USUAL_GUIDANCE = Guidance(SCHEDULES[0])
"""As LeRobot continues chunks where nothing is said."""


@dataclass(frozen=True)
class TimeEmbedding:
    """Sines and cosines of the time, ``width`` in all, with periods from ``shortest`` to ``longest``."""

    width: int
    shortest: float
    longest: float

    def __call__(self, time: float) -> Array:
        """float32 [1, width]. The time is rounded to float32, its angles are float64, as in training."""
        periods = self.shortest * (self.longest / self.shortest) ** np.linspace(0.0, 1.0, self.width // 2)
        angle = (1.0 / periods * 2 * math.pi) * np.float64(np.float32(time))
        return np.concatenate((np.sin(angle), np.cos(angle)))[None].astype(np.float32)


@dataclass(frozen=True)
class FlowMatching:
    """The solver of a policy with ``time_embedding``; samples of ``rows`` actions, ``width`` wide.

    Its STEP inputs, float32: ``time_embedding`` [1, w], ``steps`` [1], their number, ``time`` [1], and
    ``guidance`` [1]: how hard the step is drawn to the rows of the previous chunk.
    """

    default_steps: int
    rows: int
    width: int
    time_embedding: TimeEmbedding
    guidance: Guidance = USUAL_GUIDANCE

    noise_per_step = False
    schedules = SCHEDULES

    @property
    def sample_shape(self) -> tuple[int, int]:
        """Rows and width of a sample."""
        return self.rows, self.width

    def steps(self, count: int) -> Sequence[Mapping[str, Array]]:
        """The inputs of each of ``count`` steps, without guidance."""
        return [self._step(index, count, 0.0) for index in range(count)]

    def guided_steps(self, count: int, max_guidance_weight: float) -> Sequence[Mapping[str, Array]]:
        """The inputs of each of ``count`` steps with guidance up to ``max_guidance_weight``."""
        return [
            self._step(index, count, guidance_weight(_time(index, count), max_guidance_weight))
            for index in range(count)
        ]

    def prefix_weights(self, rows: int, frozen: int, horizon: int, schedule: str) -> Array:
        """How much each of ``rows`` actions is held to the previous chunk, float32 [rows, 1].

        1 for the first ``frozen`` ones, 0 from ``horizon`` on; between them by ``schedule``: falling
        linearly, or faster (EXP), or still 1 (ONES), or 0 already (ZEROS).
        """
        frozen = min(frozen, horizon)
        weights = np.zeros(rows, np.float32)
        weights[:frozen] = 1
        if schedule != "ZEROS":
            weights[frozen:horizon] = _falling(horizon - frozen, schedule)
        return weights[:, None]

    def _step(self, index: int, count: int, guidance: float) -> dict[str, Array]:
        time = _time(index, count)
        return {
            "time_embedding": self.time_embedding(time),
            "steps": np.array([count], np.float32),
            "time": np.array([time], np.float32),
            "guidance": np.array([guidance], np.float32),
        }


def guidance_weight(time: float, most: float) -> float:
    """How hard a step at ``time`` is drawn to the previous chunk, at most ``most``.

    With t' = 1 - time the time that runs towards the actions: (1 - t') / t' over the variance that is left,
    (1 - t')^2 / ((1 - t')^2 + t'^2).
    """
    towards = 1 - time
    if towards <= 0:
        return most
    return min((1 - towards) / towards * ((1 - towards) ** 2 + towards**2) / (1 - towards) ** 2, most)


def _time(index: int, count: int) -> float:
    return 1.0 + index * (-1.0 / count)


def _falling(rows: int, schedule: str) -> Array:
    if schedule == "ONES":
        return np.ones(rows)
    linear = np.linspace(1, 0, rows + 2)[1:-1]
    return linear if schedule == "LINEAR" else linear * np.expm1(linear) / (math.e - 1)
