"""The SigLIP vision transformer as SmolVLM has it: learned positions are found by a patch's coordinates.
PaliGemma has as many of these as patches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.modules import layer_norm, linear
from vla_simd_ros.policies.weights import Weights

_COLOURS = 3
# As the largest coordinate is limited where the model was trained.
_BELOW_ONE = np.float32(1.0 - 1e-6)


@dataclass(frozen=True)
class SiglipConfig:
    """Sizes; ``grid`` is the side of the square of learned positions. ``half_positions``: coordinates of
    patches are rounded to bfloat16 before their positions are looked up, as where the tower runs in it."""

    width: int
    heads: int
    feedforward: int
    layers: int
    patch: int
    grid: int
    eps: float
    half_positions: bool


class Siglip:
    """A vision tower whose tensors are named as the transformers library does."""

    def __init__(self, config: SiglipConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights

    def build(self, b: Builder, image: Tensor, block: Callable[[str], str]) -> Tensor:
        """The patches' states, [rows * columns, width], of an image [H, W, 3]; ``block`` names blocks."""
        with b.block(block("patches")):
            x = self._patches(b, image)
        for index in range(self._config.layers):
            with b.block(block(str(index))):
                x = self._layer(b, x, f"encoder.layers.{index}")
        with b.block(block("final")):
            return self._norm(b, x, "post_layernorm", "norm")

    def _patches(self, b: Builder, image: Tensor) -> Tensor:
        width, patch = self._config.width, self._config.patch
        filters = self._weights.filters(b, "embeddings.patch_embedding.weight", width, _COLOURS, patch)
        x = b.conv2d(image, filters, stride=patch, name="product")
        rows, columns, _ = x.shape
        bias = self._weights.constant(b, "embeddings.patch_embedding.bias", width)
        x = b.add(x, bias, name="patches")
        positions = b.reshape(self._positions(b, rows, columns), x.shape, name=f"positions.{rows}x{columns}")
        return b.reshape(b.add(x, positions, name="positioned"), (rows * columns, width), name="tokens")

    def _positions(self, b: Builder, rows: int, columns: int) -> Tensor:
        """The learned positions of the patches, [rows * columns, width]."""
        grid, half = self._config.grid, self._config.half_positions

        def indices() -> Array:
            down, right = (position_indices(count, grid, half) for count in (rows, columns))
            return (down[:, None] * grid + right).reshape(-1).astype(np.int32)

        size = f"{rows}x{columns}"
        table = self._weights.constant(b, "embeddings.position_embedding.weight", grid**2, self._config.width)
        ids = b.constant(f"position_indices.{size}", self._weights.made(("positions", size), indices))
        return b.embedding(table, ids, name=size)

    def _layer(self, b: Builder, x: Tensor, prefix: str) -> Tensor:
        width, heads = self._config.width, self._config.heads
        y = self._norm(b, x, f"{prefix}.layer_norm1", "norm1")
        q, k, v = (
            linear(b, y, self._weights, f"{prefix}.self_attn.{part}_proj", width, name=f"self_attn.{part}")
            for part in "qkv"
        )
        y = b.attention(q, k, v, heads=heads, scale=(width // heads) ** -0.5, name="self_attn.attention")
        y = linear(b, y, self._weights, f"{prefix}.self_attn.out_proj", width, name="self_attn.out")
        x = b.add(x, y, name="self_attn.sum")
        y = self._norm(b, x, f"{prefix}.layer_norm2", "norm2")
        y = linear(b, y, self._weights, f"{prefix}.mlp.fc1", self._config.feedforward, name="linear1")
        y = b.activation("gelu_tanh", y, name="gelu")
        y = linear(b, y, self._weights, f"{prefix}.mlp.fc2", width, name="linear2")
        return b.add(x, y, name="linear2.sum")

    def _norm(self, b: Builder, x: Tensor, module: str, name: str) -> Tensor:
        return layer_norm(b, x, self._weights, module, eps=self._config.eps, name=name)


def position_indices(count: int, grid: int, half: bool) -> Array:
    """Which of ``grid`` positions each of ``count`` patches along a side has.

    A patch has the coordinate i / count in float32, rounded to bfloat16 if ``half``, and the position
    whose share of [0, 1) it falls into. Coordinates lie on the borders of shares, so that the precision
    decides: it is the one that the model was trained with, step by step.
    """
    coordinates = np.arange(count, dtype=np.float32) * (np.float32(1) / np.float32(count))
    coordinates = np.minimum(coordinates, _BELOW_ONE)
    if half:
        coordinates = _rounded_to_bfloat16(coordinates)
    share = 1 / grid
    borders = (share + np.arange(math.ceil((1.0 - share) / share)) * share).astype(np.float32)
    return np.asarray(np.searchsorted(borders, coordinates, side="right"))


def _rounded_to_bfloat16(values: Array) -> Array:
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    return np.asarray(rounded & np.uint32(0xFFFF0000)).view(np.float32)
