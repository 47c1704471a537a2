"""Octo's diffusion head: one denoising step of a chunk, given the readout of the observations."""

from __future__ import annotations

import math

import numpy as np

from vla_simd_ros.checkpoints.normalization import Unnormalizer
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.blocks.normalization import unnormalized
from vla_simd_ros.policies.octo_config import OctoConfig
from vla_simd_ros.policies.solvers.ancestral import AncestralSolver
from vla_simd_ros.policies.weights import Weights

_EPS = 1e-6


class DiffusionHead:
    """A residual MLP that predicts the noise in a sample; its weights are named after "head."."""

    def __init__(self, config: OctoConfig, weights: Weights, unnormalizer: Unnormalizer) -> None:
        self._config = config
        self._weights = weights
        self._unnormalizer = unnormalizer
        shape = config.chunk_size, config.action_width
        self.solver = AncestralSolver(config.head.steps, shape, config.action.channels, config.head.bound)

    def build(self, b: Builder, readouts: Tensor) -> None:
        """Add the step program, from its inputs to the outputs ``sample`` and ``action``."""
        sample = self.solver.sample(b)
        with b.block("head"):
            observed = b.mean_rows(readouts, name="readout")
            noise = self._noise(b, observed, sample)
        with b.block("solver"):
            after = self.solver.advance(b, sample, noise)
        b.output("sample", after)
        with b.block("postprocess"):
            acted = b.slice(after, axis=1, start=0, stop=self._config.action.channels, name="acted")
            b.output("action", unnormalized(b, acted, self._unnormalizer, name="action"))

    def _noise(self, b: Builder, observed: Tensor, sample: Tensor) -> Tensor:
        """The noise in ``sample``, of its shape."""
        head = self._config.head
        flat = b.reshape(sample, (1, sample.size), name="flat")
        inputs = b.concat([self._time(b), observed, flat], axis=1, name="inputs")
        x = self._linear(b, inputs, "input", head.width)
        for index in range(head.blocks):
            x = self._block(b, x, f"blocks.{index}")
        x = self._linear(b, b.activation("silu", x, name="silu"), "output", sample.size)
        return b.reshape(x, sample.shape, name="noise")

    def _time(self, b: Builder) -> Tensor:
        """What the network is told of the time, [1, time_dim]."""
        head = self._config.head
        frequencies = self._weights.array("time.frequencies", (head.time_dim // 2, 1))
        table = self._weights.made("time", lambda: fourier_features(head.steps, frequencies))
        x = b.embedding(b.constant("head.time.features", table), self.solver.times(b), name="time")
        x = self._linear(b, x, "time.linear1", 2 * head.time_dim)
        return self._linear(b, b.activation("silu", x, name="time.silu"), "time.linear2", head.time_dim)

    def _block(self, b: Builder, x: Tensor, prefix: str) -> Tensor:
        width = self._config.head.width
        y = layer_norm(b, x, self._weights, f"{prefix}.norm", eps=_EPS, name=f"{prefix}.norm")
        y = self._linear(b, y, f"{prefix}.linear1", 4 * width)
        y = self._linear(b, b.activation("silu", y, name=f"{prefix}.silu"), f"{prefix}.linear2", width)
        return b.add(x, y, name=f"{prefix}.sum")

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int) -> Tensor:
        return linear(b, x, self._weights, module, outputs, name=module)


def fourier_features(steps: int, frequencies: Array) -> Array:
    """Cosines, then sines, of each of the times 0 to ``steps - 1``, float32 [steps, 2 * frequencies]."""
    angle = 2 * math.pi * np.arange(steps)[:, None] * frequencies.astype(np.float64).reshape(1, -1)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
