from __future__ import annotations

import numpy as np

from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.policies.blocks.gru import Gru
from vla_simd_ros.policies.weights import Weights

INPUTS, WIDTH = 3, 5


class Random:
    """Weights that depend on their name."""

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        return self.drawn(name)

    def drawn(self, name: str) -> Array:
        rows = 3 * WIDTH
        shape = {"ih": (rows, INPUTS), "hh": (rows, WIDTH)}[name[-2:]] if "weight" in name else (rows,)
        return np.random.default_rng(len(name) + ord(name[-2])).normal(size=shape).astype(np.float32)

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return self.drawn(name).shape

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self.drawn(name)[start:stop]

    def mapped(self, name: str) -> Array:
        return self.drawn(name)

    def check_mapped(self) -> None: ...


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def test_states_follow_the_published_equations() -> None:
    b = Builder()
    x, h = (b.input(n, (1, w), DType.F32, Lifetime.QUERY) for n, w in (("x", INPUTS), ("h", WIDTH)))
    for index, state in enumerate(Gru(Weights(Random()), "gru", INPUTS, WIDTH).states(b, x, h, 3)):
        b.output(str(index), state)
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=(1, w)).astype(np.float32) for name, w in (("x", INPUTS), ("h", WIDTH))}
    values = run_graph(b.graph(), given)
    source = Random()
    w_in, w_on, b_in, b_on = (
        source.drawn(f"gru.{n}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state = given["h"].astype(np.float64)
    for index in range(3):
        r_in, z_in, n_in = np.split(given["x"] @ w_in.T.astype(np.float64) + b_in, 3, axis=1)
        r_on, z_on, n_on = np.split(state @ w_on.T + b_on, 3, axis=1)
        reset, update = sigmoid(r_in + r_on), sigmoid(z_in + z_on)
        state = (1 - update) * np.tanh(n_in + reset * n_on) + update * state
        np.testing.assert_allclose(values[b.graph().outputs[str(index)]], state, rtol=1e-12)
