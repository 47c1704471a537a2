"""The U-Net over time against convolutions written as sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from vla_simd_ros.checkpoints.synthesis.unet import add_unet
from vla_simd_ros.checkpoints.synthesis.weights import WeightMaker
from vla_simd_ros.executors.reference_executor import run_graph
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, DType, Lifetime
from vla_simd_ros.policies.blocks.unet1d import UNet, UNetConfig
from vla_simd_ros.policies.weights import Weights

ACTIONS, CONDITIONS, ROWS = 3, 6, 16


class Stored:
    """Weights in memory."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self._tensors = tensors

    def shape(self, name: str, expected: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return self.tensor(name, expected).shape

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Array:
        assert shape in (None, self._tensors[name].shape), name
        return self._tensors[name]

    def rows(self, name: str, start: int, stop: int) -> Array:
        return self._tensors[name][start:stop]

    def mapped(self, name: str) -> Array:
        return self._tensors[name]

    def check_mapped(self) -> None:
        pass


class ByHand:
    """The same network, row by row and tap by tap."""

    def __init__(self, tensors: dict[str, Array], groups: int, scales: bool) -> None:
        self.w = {name.removeprefix("u."): value.astype(np.float64) for name, value in tensors.items()}
        self.groups = groups
        self.scales = scales

    def convolution(self, x: Array, name: str, stride: int = 1) -> Array:
        weight, bias = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        side = weight.shape[2] // 2
        result = []
        for row in range(0, len(x), stride):
            y = bias.copy()
            for tap in range(weight.shape[2]):
                if 0 <= row + tap - side < len(x):
                    y += weight[:, :, tap] @ x[row + tap - side]
            result.append(y)
        return np.array(result)

    def doubled(self, x: Array, name: str) -> Array:
        """Each row adds its four taps to the result, at twice its place."""
        weight = self.w[f"{name}.weight"]
        result = np.tile(self.w[f"{name}.bias"], (2 * len(x), 1))
        for row in range(len(x)):
            for tap in range(4):
                place = 2 * row + tap - 1
                if 0 <= place < len(result):
                    result[place] += x[row] @ weight[:, :, tap]
        return result

    def normed(self, x: Array, name: str, groups: int) -> Array:
        y = self.convolution(x, f"{name}.block.0")
        parts = []
        for part in np.split(y, groups, axis=1):
            parts.append((part - part.mean()) / math.sqrt(part.var() + 1e-5))
        y = np.concatenate(parts, axis=1) * self.w[f"{name}.block.1.weight"] + self.w[f"{name}.block.1.bias"]
        return np.asarray(y * np.tanh(np.log1p(np.exp(y))))

    def block(self, x: Array, conditions: Array, name: str) -> Array:
        y = self.normed(x, f"{name}.conv1", self.groups)
        both = self.w[f"{name}.cond_encoder.1.weight"] @ conditions + self.w[f"{name}.cond_encoder.1.bias"]
        width = y.shape[1]
        y = y * both[:width] + both[width:] if self.scales else y + both
        y = self.normed(y, f"{name}.conv2", self.groups)
        residual = f"{name}.residual_conv"
        return y + (self.convolution(x, residual) if f"{residual}.weight" in self.w else x)

    def run(self, x: Array, conditions: Array, levels: int) -> Array:
        skipped = []
        for level in range(levels):
            x = self.block(x, conditions, f"down_modules.{level}.0")
            x = self.block(x, conditions, f"down_modules.{level}.1")
            skipped.append(x)
            if level < levels - 1:
                x = self.convolution(x, f"down_modules.{level}.2", stride=2)
        for index in range(2):
            x = self.block(x, conditions, f"mid_modules.{index}")
        for index in range(levels - 1):
            x = np.concatenate([x, skipped.pop()], axis=1)
            x = self.block(x, conditions, f"up_modules.{index}.0")
            x = self.block(x, conditions, f"up_modules.{index}.1")
            x = self.doubled(x, f"up_modules.{index}.2")
        return self.convolution(self.normed(x, "final_conv.0", 8), "final_conv.1")


@pytest.mark.parametrize(
    ("widths", "kernel", "groups", "scales"),
    [([8, 16], 3, 4, True), ([16, 8, 24], 5, 2, False), ([8], 1, 8, True)],
)
def test_predictions_are_those_of_the_sums(widths: list[int], kernel: int, groups: int, scales: bool) -> None:
    config: dict[str, Any] = {
        "down_dims": widths,
        "kernel_size": kernel,
        "use_film_scale_modulation": scales,
        "diffusion_step_embed_dim": 4,
    }
    make = WeightMaker(3)
    add_unet(make, "u", config, ACTIONS, CONDITIONS - 4)
    unet = UNet(UNetConfig(widths, kernel, groups, scales), Weights(Stored(make.tensors), "u."))
    b = Builder()
    rows = b.input("rows", (ROWS, ACTIONS), DType.F32, Lifetime.STEP)
    conditions = b.input("conditions", (1, CONDITIONS), DType.F32, Lifetime.QUERY)
    b.output("y", unet.build(b, rows, conditions))
    graph = b.graph()
    rng = np.random.default_rng(4)
    x = rng.normal(size=(ROWS, ACTIONS)).astype(np.float32)
    given = rng.normal(size=(1, CONDITIONS)).astype(np.float32)
    actual = run_graph(graph, {"rows": x, "conditions": given})[graph.outputs["y"]]
    expected = ByHand(make.tensors, groups, scales).run(
        x.astype(np.float64), given[0].astype(np.float64), len(widths)
    )
    # 1 is taken off the stored scales in float32, and added again.
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
