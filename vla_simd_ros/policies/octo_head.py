"""Octo's diffusion head: one denoising step of a chunk, given the readout of the observations."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.checkpoints.normalization import Unnormalizer
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import DType, Lifetime, Tensor
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
        head = config.head
        self.solver = AncestralSolver(
            head.steps,
            (config.chunk_size, config.action_width),
            weights.array("time.frequencies", (head.time_dim // 2, 1)).reshape(-1),
        )

    def build(self, b: Builder, readouts: Tensor) -> None:
        """Add the step program, from its inputs to the outputs ``sample`` and ``action``."""
        shape = self.solver.sample_shape
        sample, noise = (b.input(n, shape, DType.F32, Lifetime.STEP) for n in ("sample", "step_noise"))
        given = {
            name: b.input(name, size, DType.F32, Lifetime.STEP)
            for name, size in self.solver.input_shapes.items()
        }
        with b.block("head"):
            observed = b.mean_rows(readouts, name="readout")
            predicted = self._predict(b, observed, sample, given["time_features"])
        with b.block("solver"):
            after = self._next(b, sample, predicted, noise, given)
        b.output("sample", after)
        with b.block("postprocess"):
            acted = b.slice(after, axis=1, start=0, stop=self._config.action.channels, name="acted")
            b.output("action", unnormalized(b, acted, self._unnormalizer, name="action"))

    def _predict(self, b: Builder, observed: Tensor, sample: Tensor, time: Tensor) -> Tensor:
        """The noise in ``sample``, of its shape."""
        head = self._config.head
        flat = b.reshape(sample, (1, sample.size), name="flat")
        time = self._linear(b, time, "time.linear1", 2 * head.time_dim)
        time = self._linear(b, b.activation("silu", time, name="time.silu"), "time.linear2", head.time_dim)
        x = self._linear(b, b.concat([time, observed, flat], axis=1, name="inputs"), "input", head.width)
        for index in range(head.blocks):
            x = self._block(b, x, f"blocks.{index}")
        x = self._linear(b, b.activation("silu", x, name="silu"), "output", sample.size)
        return b.reshape(x, sample.shape, name="noise")

    def _block(self, b: Builder, x: Tensor, prefix: str) -> Tensor:
        width = self._config.head.width
        y = layer_norm(b, x, self._weights, f"{prefix}.norm", eps=_EPS, name=f"{prefix}.norm")
        y = self._linear(b, y, f"{prefix}.linear1", 4 * width)
        y = self._linear(b, b.activation("silu", y, name=f"{prefix}.silu"), f"{prefix}.linear2", width)
        return b.add(x, y, name=f"{prefix}.sum")

    def _next(
        self, b: Builder, sample: Tensor, predicted: Tensor, noise: Tensor, given: dict[str, Tensor]
    ) -> Tensor:
        """The next sample: less of the predicted noise, some new noise, and no value beyond the bound."""
        x = b.binary(
            "sub", sample, b.binary("mul", predicted, given["noise_share"], name="share"), name="less"
        )
        x = b.binary("mul", x, given["gain"], name="scaled")
        x = b.add(x, b.binary("mul", noise, given["deviation"], name="new"), name="noisy")
        lowest, highest = self._bounds(b)
        x = b.binary("max", b.binary("min", x, highest, name="below"), lowest, name="clipped")
        return self._with_unused_columns(b, x, noise, given["level"])

    def _bounds(self, b: Builder) -> tuple[Tensor, Tensor]:
        bound = np.float32(self._config.head.bound)
        made = self._weights.made
        lowest = made("lowest", lambda: np.full(1, -bound))
        highest = made("highest", lambda: np.full(1, bound))
        return b.constant("solver.lowest", lowest), b.constant("solver.highest", highest)

    def _with_unused_columns(self, b: Builder, x: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """Columns that the robot does not have hold the noise that they had in training."""
        width, used = x.shape[1], self._config.action.channels
        if used == width:
            return x
        rest = b.slice(noise, axis=1, start=used, stop=width, name="unused.noise")
        rest = b.binary("mul", rest, level, name="unused")
        return b.concat([b.slice(x, axis=1, start=0, stop=used, name="used"), rest], axis=1, name="sample")

    def _linear(self, b: Builder, x: Tensor, module: str, outputs: int) -> Tensor:
        return linear(b, x, self._weights, module, outputs, name=module)
