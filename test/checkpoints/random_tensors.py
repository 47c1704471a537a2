"""Weights of any name and shape, for networks that are built without a checkpoint."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.ir import Array


class RandomTensors:
    """Weights drawn from N(0, scale); those of norms around 1."""

    def __init__(self, seed: int, scale: float) -> None:
        self._seed, self._scale = seed, scale
        self._made: dict[str, Array] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        if expected is not None:
            self._shapes[name] = expected
        return self._shapes[name]

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        if name not in self._made:
            rng = np.random.default_rng([self._seed, *name.encode()])
            values = rng.normal(size=shape or self._shapes[name]) * self._scale
            self._made[name] = (values + ("norm" in name)).astype(np.float32)
        return self._made[name]

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self.tensor(name)[start:stop]

    def mapped(self, name: str) -> Array:
        return self.tensor(name)

    def check_mapped(self) -> None:
        pass
