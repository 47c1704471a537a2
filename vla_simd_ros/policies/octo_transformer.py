"""Octo's block-wise causal transformer: instruction, then for each observation its tokens and readouts.

The instruction attends to itself alone, so all its rows live as long as it does. An observation attends to
the instruction and to observations up to its own; readouts to the same and to readouts, and nothing else to
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.octo_config import OctoConfig
from vla_simd_ros.policies.weights import Weights

_EPS = 1e-6
# Added to a score that does not count: far below any score, and finite so that sums of two stay numbers.
_MASKED = np.float32(-1e9)


@dataclass(frozen=True)
class Layout:
    """Rows of the sequence: ``task`` of the instruction, then ``window`` times ``images`` + ``told`` +
    ``readouts``, where ``told`` are the instruction's again."""

    task: int
    window: int
    images: int
    told: int
    readouts: int
    correct_attention: bool

    @property
    def step(self) -> int:
        """Rows of one observation."""
        return self.images + self.told + self.readouts

    def keys(self, step: int) -> int:
        """Rows that an observation can attend to, the first of the sequence."""
        return self.task + self.step * (step + 1)

    def forbidden(self, step: int) -> Array:
        """float32 [rows of an observation, its keys]: added to the scores, whatever was observed."""
        # The first release counted the first row of a group to the group before it.
        first = self.images + self.told + (0 if self.correct_attention else 1)
        readout = np.arange(self.step) >= first
        keys = np.concatenate([np.zeros(self.task, bool), *[readout] * (step + 1)])
        return np.asarray(np.where(keys[None, :] & ~readout[:, None], _MASKED, np.float32(0)))

    def missing(self) -> tuple[Array, Array]:
        """Weight [keys, window] and bias [keys] of the layer that makes of an observation mask what is added
        to the scores of every row: only images can be missing, the instruction beside them stays."""
        seen = np.zeros((self.task + self.step * self.window, self.window), np.float32)
        for step in range(self.window):
            start = self.task + self.step * step
            seen[start : start + self.images, step] = 1
        return -_MASKED * seen, _MASKED * seen.sum(axis=1)


class BlockTransformer:
    """The transformer; its weights are named after "transformer."."""

    def __init__(self, config: OctoConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    def read(self, b: Builder, task: Tensor, window: Tensor, layout: Layout, mask: Tensor | None) -> Tensor:
        """The last observation's readouts [n, width], given the rows of the instruction and of the window."""
        biases = self._biases(b, layout, mask)
        for index in range(self._config.layers - 1):
            with b.block(f"transformer.{index}"):
                task, window = self._layer(b, task, window, layout, biases, index)
        last = self._config.layers - 1
        with b.block(f"transformer.{last}"):
            readouts = self._last_layer(b, task, window, layout, biases[-1], last)
            return self._norm(b, readouts, "norm", "final_norm")

    def _biases(self, b: Builder, layout: Layout, mask: Tensor | None) -> list[Tensor]:
        """For each observation, what is added to the scores of its rows, [1, rows, keys]."""
        with b.block("mask"):
            missing = None if mask is None else self._missing(b, layout, mask)
            return [self._bias(b, layout, step, missing) for step in range(layout.window)]

    def _missing(self, b: Builder, layout: Layout, mask: Tensor) -> Tensor:
        made = self._weights.made
        weight = b.constant("mask.weight", made((layout, "missing"), lambda: layout.missing()[0]))
        bias = b.constant("mask.bias", made((layout, "present"), lambda: layout.missing()[1]))
        return b.linear(b.reshape(mask, (1, layout.window), name="row"), weight, bias, name="missing")

    def _bias(self, b: Builder, layout: Layout, step: int, missing: Tensor | None) -> Tensor:
        forbidden = self._weights.made((layout, step), lambda: layout.forbidden(step))
        bias = b.constant(f"mask.{step}.forbidden", forbidden)
        if missing is not None:
            keys = b.slice(missing, axis=1, start=0, stop=layout.keys(step), name=f"{step}.missing")
            bias = b.add(bias, keys, name=f"{step}.all")
        return b.reshape(bias, (1, *bias.shape), name=f"{step}.bias")

    def _layer(
        self, b: Builder, task: Tensor, window: Tensor, layout: Layout, biases: list[Tensor], index: int
    ) -> tuple[Tensor, Tensor]:
        prefix = f"layers.{index}"
        task_q, task_k, task_v = self._project(
            b, self._norm(b, task, f"{prefix}.norm1", "task.norm1"), prefix, "task."
        )
        q, k, v = self._project(b, self._norm(b, window, f"{prefix}.norm1", "norm1"), prefix, "")
        keys = b.concat([task_k, k], axis=0, name="keys")
        values = b.concat([task_v, v], axis=0, name="values")
        attended = []
        for step, bias in enumerate(biases):
            first, stop = step * layout.step, layout.keys(step)
            rows = b.slice(q, axis=0, start=first, stop=first + layout.step, name=f"{step}.q")
            k = b.slice(keys, axis=0, start=0, stop=stop, name=f"{step}.k")
            v = b.slice(values, axis=0, start=0, stop=stop, name=f"{step}.v")
            attended.append(self._attend(b, rows, k, v, bias, f"{step}.attention"))
        y = b.concat(attended, axis=0, name="attention")
        window = self._rest(b, window, y, prefix, "")
        y = self._attend(b, task_q, task_k, task_v, None, "task.attention")
        return self._rest(b, task, y, prefix, "task."), window

    def _last_layer(
        self, b: Builder, task: Tensor, window: Tensor, layout: Layout, bias: Tensor, index: int
    ) -> Tensor:
        """Of the last layer, only the last observation's readouts are read."""
        prefix = f"layers.{index}"
        rows = {"start": window.shape[0] - layout.readouts, "stop": window.shape[0]}
        readouts = b.slice(window, axis=0, **rows, name="readouts")
        normed = self._norm(b, window, f"{prefix}.norm1", "norm1")
        task = self._norm(b, task, f"{prefix}.norm1", "task.norm1")
        q = self._linear(b, b.slice(normed, axis=0, **rows, name="normed"), f"{prefix}.self_attn.q", "q")
        keys, values = (
            b.concat(
                [
                    self._linear(b, x, f"{prefix}.self_attn.{letter}", f"{name}{letter}")
                    for x, name in ((task, "task."), (normed, ""))
                ],
                axis=0,
                name=whole,
            )
            for letter, whole in (("k", "keys"), ("v", "values"))
        )
        first = layout.step - layout.readouts
        bias = b.slice(bias, axis=1, start=first, stop=layout.step, name="bias")
        y = self._attend(b, q, keys, values, bias, "attention")
        return self._rest(b, readouts, y, prefix, "")

    def _project(self, b: Builder, x: Tensor, prefix: str, name: str) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (self._linear(b, x, f"{prefix}.self_attn.{letter}", f"{name}{letter}") for letter in "qkv")
        return q, k, v

    def _attend(self, b: Builder, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, name: str) -> Tensor:
        heads = self._config.heads
        scale = (self._config.width // heads) ** -0.5
        return b.attention(q, k, v, bias, heads=heads, scale=scale, name=name)

    def _rest(self, b: Builder, x: Tensor, attended: Tensor, prefix: str, name: str) -> Tensor:
        """Output projection and feed-forward layers with their residuals."""
        y = self._linear(b, attended, f"{prefix}.self_attn.out", f"{name}out")
        x = b.add(x, y, name=f"{name}out.sum")
        y = self._norm(b, x, f"{prefix}.norm2", f"{name}norm2")
        y = self._linear(b, y, f"{prefix}.linear1", f"{name}linear1", self._config.feedforward)
        y = b.activation("gelu_tanh", y, name=f"{name}gelu")
        y = self._linear(b, y, f"{prefix}.linear2", f"{name}linear2")
        return b.add(x, y, name=f"{name}linear2.sum")

    def _linear(self, b: Builder, x: Tensor, module: str, name: str, outputs: int = 0) -> Tensor:
        return linear(b, x, self._weights, module, outputs or self._config.width, name=name)

    def _norm(self, b: Builder, x: Tensor, module: str, name: str) -> Tensor:
        return layer_norm(b, x, self._weights, module, eps=_EPS, name=name)
