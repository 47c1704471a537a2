"""A policy that iterates, small enough to be computed by hand: a definition and the same in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Graph, Lifetime, Tensor
from vla_simd_ros.policies.base import CameraSpec, Guidance, PolicySpec

ROWS, WIDTH, ACTIONS, STATE, SIDE, TOKENS = 4, 3, 2, 2, 4, 8
_RNG = np.random.default_rng(7)


def _weights(*shape: int) -> Array:
    return _RNG.normal(size=shape).astype(np.float32)


PIXELS, STATES, WORDS = _weights(WIDTH, 3), _weights(WIDTH, STATE), _weights(40000, WIDTH)
MASK, HIDDEN = _weights(WIDTH, 2), _weights(WIDTH, WIDTH)
INTO, OUT, OFFSET = _weights(WIDTH, ACTIONS), _weights(ACTIONS, WIDTH), _weights(ACTIONS)


class SmallSolver:
    """Euler steps from time 1 to 0, which may take noise; even counts only."""

    default_steps = 4
    sample_shape = (ROWS, WIDTH)
    schedules = ("ones", "linear")
    guidance = Guidance("ones", horizon=3, max_weight=0.7)

    def __init__(self, noise_per_step: bool = False) -> None:
        self.noise_per_step = noise_per_step
        self.asked: list[int] = []

    def steps(self, count: int) -> Sequence[Mapping[str, Array]]:
        return self.guided_steps(count, 1.0)

    def guided_steps(self, count: int, max_guidance_weight: float) -> Sequence[Mapping[str, Array]]:
        if count % 2:
            raise ValueError("expected an even number")
        self.asked.append(count)
        return [
            {
                "time": np.full(WIDTH, 1 - k / count, np.float32),
                "dt": np.full(WIDTH, -1 / count, np.float32),
                "guidance": np.full(WIDTH, min(max_guidance_weight, 0.25 * (k + 1)), np.float32),
            }
            for k in range(count)
        ]

    def prefix_weights(self, rows: int, frozen: int, horizon: int, schedule: str) -> Array:
        weights = np.zeros((rows, 1), np.float32)
        weights[:frozen] = 1
        weights[frozen:horizon] = 1 if schedule == "ones" else 0.5
        return weights


@dataclass
class IteratingPolicy:
    """The definition: a camera, a state, and as asked text, several observation steps, noise per step."""

    text: bool = False
    observation_steps: int = 1
    noise_per_step: bool = False
    prefix: bool = False

    action_tokens = None

    def __post_init__(self) -> None:
        self.solver = SmallSolver(self.noise_per_step)

    @property
    def spec(self) -> PolicySpec:
        return PolicySpec(
            "iterating",
            {"front": CameraSpec(SIDE, SIDE)},
            STATE,
            0,
            ACTIONS,
            ROWS,
            ROWS,
            uses_instruction=self.text,
            max_instruction_tokens=TOKENS if self.text else 0,
            takes_prefix=self.prefix,
            observation_steps=self.observation_steps,
            takes_observation_mask=self.observation_steps > 1,
        )

    def check_stored(self) -> None:
        pass

    def build(self, tokens: int | None = None, rows: int = 1) -> Graph:
        b = Builder()
        context = self._context(b, tokens)
        sample = b.input("sample", (ROWS, WIDTH), DType.F32, Lifetime.STEP)
        with b.block("step"):
            after = self._step(b, sample, context)
        b.output("sample", after)
        b.output("action", b.linear(after, b.constant("out", OUT), b.constant("offset", OFFSET), name="a"))
        return b.graph()

    def _context(self, b: Builder, tokens: int | None) -> Tensor:
        n = self.observation_steps
        zeros, ones = b.constant("zeros", np.zeros(3, np.float32)), b.constant("ones", np.ones(3, np.float32))
        pixels, states = b.constant("pixels", PIXELS), b.constant("states", STATES)
        state = b.input("state", (n, STATE), DType.F32, Lifetime.QUERY)
        x = b.linear(b.mean_rows(state, name="state.mean"), states, name="state.in")
        for k in range(n):
            name = "image.front" if n == 1 else f"image.front.{k}"
            image = b.input(name, (SIDE, SIDE, 3), DType.U8, Lifetime.QUERY)
            rows = b.reshape(
                b.normalize_image(image, zeros, ones, name=f"{k}.n"), (SIDE * SIDE, 3), name=f"{k}.rows"
            )
            seen = b.linear(b.mean_rows(rows, name=f"{k}.mean"), pixels, name=f"{k}.in")
            # Not symmetric in the images, so that their order counts.
            x = b.activation("tanh", b.add(x, seen, name=f"{k}.sum"), name=f"{k}.x")
        if n > 1:
            mask = b.input("observation_mask", (n, 1), DType.F32, Lifetime.QUERY)
            seen = b.linear(b.reshape(mask, (1, n), name="mask"), b.constant("m", MASK), name="mask.in")
            x = b.add(x, seen, name="masked")
        if self.text:
            ids = b.input("token_ids", (tokens or 0,), DType.I32, Lifetime.EPISODE)
            words = b.embedding(b.constant("words", WORDS), ids, name="words.rows")
            x = b.add(x, b.mean_rows(words, name="words.mean"), name="told")
        return b.reshape(b.activation("tanh", x, name="context"), (WIDTH,), name="context.vector")

    def _step(self, b: Builder, sample: Tensor, context: Tensor) -> Tensor:
        def vector(name: str) -> Tensor:
            return b.input(name, (WIDTH,), DType.F32, Lifetime.STEP)

        x = b.linear(sample, b.constant("hidden", HIDDEN), context, name="hidden")
        x = b.activation("tanh", b.add(x, vector("time"), name="timed"), name="velocity")
        x = b.add(sample, b.binary("mul", x, vector("dt"), name="move"), name="moved")
        guidance = vector("guidance")
        if self.prefix:
            given = b.input("prefix", (ROWS, ACTIONS), DType.F32, Lifetime.QUERY)
            weights = b.input("prefix_weights", (ROWS, 1), DType.F32, Lifetime.QUERY)
            target = b.linear(given, b.constant("into", INTO), name="target")
            wide = b.linear(weights, b.constant("wide", np.ones((WIDTH, 1), np.float32)), name="weights")
            away = b.binary("mul", b.binary("sub", target, x, name="away"), wide, name="weighed")
            x = b.add(x, b.binary("mul", away, guidance, name="guided"), name="drawn")
        if self.noise_per_step:
            noise = b.input("step_noise", (ROWS, WIDTH), DType.F32, Lifetime.STEP)
            x = b.add(x, noise, name="noisy")
        return x


def expected_actions(
    images: Array,
    state: Array,
    noise: Array,
    count: int,
    *,
    mask: Array | None = None,
    ids: Sequence[int] = (),
    prefix: tuple[Array, Array, float] | None = None,
) -> Array:
    """What the policy computes, in float64: ``noise`` is one sample, or that and the noise of each step."""
    x: Any = np.atleast_2d(state).astype(np.float64).mean(axis=0) @ STATES.T
    for image in images.reshape(-1, SIDE * SIDE, 3):
        x = np.tanh(x + (image / 255).mean(axis=0) @ PIXELS.T)
    if mask is not None:
        x = x + MASK @ mask
    if len(ids):
        x = x + WORDS[list(ids)].astype(np.float64).mean(axis=0)
    context = np.tanh(x)
    first, *later = noise if noise.ndim > 2 else noise[None]
    sample = first.astype(np.float64)
    for k in range(count):
        sample = sample - np.tanh(sample @ HIDDEN.T + context + (1 - k / count)) / count
        if prefix is not None:
            rows, weights, strongest = prefix
            sample = sample + (rows @ INTO.T - sample) * weights * min(strongest, 0.25 * (k + 1))
        if later:
            sample = sample + later[k]
    return np.asarray(sample @ OUT.T + OFFSET)
