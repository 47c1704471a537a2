"""A world of one joint on a line, with a goal at either end, and policies that go there or do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vla_simd_ros.control.control_loop import ActionKind
from vla_simd_ros.control.limits import JointLimits
from vla_simd_ros.decoding.decoders import DecoderOptions
from vla_simd_ros.evaluation.world import Actions, Episode, Picture, Vector
from vla_simd_ros.inference import Query, Timing
from vla_simd_ros.observation import Observation
from vla_simd_ros.policies.base import PolicySpec, Solver

LEFT, RIGHT = "go left", "go right"
PERIOD_NS = 50_000_000
STEP = 0.05
CHUNK = 20
ENDS = {LEFT: -1.0, RIGHT: 1.0}
_NEAR = 1e-6


class LineWorld:
    """The joint is at once where it is told to be; it starts near the middle."""

    instructions = (LEFT, RIGHT)
    period_ns = PERIOD_NS

    def __init__(self, kind: ActionKind = ActionKind.POSITION) -> None:
        wide = np.full(1, 1e6)
        self.actions = Actions(("slide",), kind, JointLimits(-wide, wide, wide, wide, ("slide",)))
        self.place = 0.0
        self.steps = 0
        self.idle = 0
        self.closed = False

    def begin(self, episode: Episode) -> None:
        self.place = float(np.random.default_rng(episode.seed).uniform(-0.02, 0.02))
        self.steps = self.idle = 0

    def observe(self) -> Observation:
        return Observation({}, np.array([self.place], np.float32))

    @property
    def positions(self) -> Vector:
        return np.array([self.place])

    def act(self, command: Vector | None) -> None:
        self.steps += 1
        if command is None:
            self.idle += 1
        else:
            self.place = float(command[0])

    def achieved(self) -> frozenset[str]:
        return frozenset(text for text, end in ENDS.items() if abs(self.place - end) < _NEAR)

    def state(self) -> Mapping[str, list[float]]:
        return {"place": [self.place]}

    def picture(self) -> Picture:
        picture = np.zeros((48, 64, 3), np.uint8)
        picture[:, int(np.clip(32 + 30 * self.place, 0, 63))] = 255
        return picture

    def close(self) -> None:
        self.closed = True


def line_spec(uses_instruction: bool = True, observation_steps: int = 1) -> PolicySpec:
    return PolicySpec(
        type="line",
        cameras={},
        state_dim=1,
        env_state_dim=0,
        action_dim=1,
        chunk_size=CHUNK,
        n_action_steps=CHUNK,
        uses_instruction=uses_instruction,
        max_instruction_tokens=8 if uses_instruction else 0,
        observation_steps=observation_steps,
    )


class LinePolicy:
    """Goes to the end that it is told, by `STEP` a row, from where it sees itself."""

    def __init__(self, spec: PolicySpec | None = None, query_ms: float = 7.0) -> None:
        self.spec = spec or line_spec()
        self.solver: Solver | None = None
        self.decoder: DecoderOptions | None = None
        self.end = ENDS[LEFT]
        self.query_ms = query_ms
        self.seen: list[Observation] = []

    def set_instruction(self, text: str) -> float:
        self.end = ENDS[text]
        return 0.0

    def set_decoder(self, **options: Any) -> None:
        raise AssertionError("a policy of one pass was given a decoder")

    def noise(self, seed: int) -> npt.NDArray[np.float32]:
        raise AssertionError("a policy of one pass was asked for noise")

    def query(self, observation: Observation, *, noise: npt.NDArray[np.float32] | None = None) -> Query:
        self.seen.append(observation)
        assert observation.state is not None
        place = float(np.atleast_2d(observation.state)[-1, 0])
        rows = place + np.sign(self.end - place) * STEP * np.arange(1, CHUNK + 1)
        rows = np.minimum(rows, self.end) if self.end > place else np.maximum(rows, self.end)
        return self.answer(rows[:, None])

    def answer(self, rows: npt.ArrayLike) -> Query:
        return Query(np.asarray(rows, np.float32), Timing(0.0, self.query_ms, 0.0, 0.0, self.query_ms))


class DeafPolicy(LinePolicy):
    """Goes left, whatever it is told."""

    def set_instruction(self, text: str) -> float:
        return 0.0


class BrokenPolicy(LinePolicy):
    """Answers something that is no action."""

    def query(self, observation: Observation, *, noise: npt.NDArray[np.float32] | None = None) -> Query:
        return self.answer(np.full((CHUNK, 1), np.nan))
