"""From a frame to the key points of its contents: a ResNet, a spatial softmax, a linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.blocks.image_geometry import centre_crop, smoothly_resized
from vla_simd_ros.policies.blocks.resnet import ResNet
from vla_simd_ros.policies.weights import TensorSource, Weights

Size = tuple[int, int]

# The backbone's children are numbered: convolution, norm, activation, pooling, four stages.
_STEM = ("0", "1")
_FIRST_STAGE = 4


@dataclass(frozen=True)
class EncoderConfig:
    """A frame is ``resized`` first, then ``cropped``, where these sizes are given."""

    backbone: str
    group_norm: bool
    keypoints: int
    resized: Size | None
    cropped: Size | None


class KeypointEncoder:
    """The encoder whose weights are called ``prefix``. Raises CheckpointError for an unknown backbone."""

    def __init__(self, config: EncoderConfig, source: TensorSource, prefix: str) -> None:
        self._config = config
        self._weights = Weights(source, prefix)
        self._backbone = ResNet(
            config.backbone,
            Weights(source, f"{prefix}backbone."),
            lambda stage: f"{_FIRST_STAGE + stage}",
            stem=_STEM,
            group_norm=config.group_norm,
        )

    def build(self, b: Builder, image: Tensor, view: str) -> Tensor:
        """The key points [1, 2 * keypoints] of a normalized frame; ``view`` names the blocks."""
        with b.block("preprocess"):
            image = self._fitted(b, image, f"image.{view}")
        x = self._backbone.build(b, image, f"backbone.{view}")
        width = 2 * self._config.keypoints
        with b.block(f"keypoints.{view}"):
            points = self._spatial_softmax(b, x)
            weight = self._weights.constant(b, "out.weight", width, width)
            y = b.linear(points, weight, self._weights.constant(b, "out.bias", width), name="out")
            return b.activation("relu", y, name="out.relu")

    def _fitted(self, b: Builder, image: Tensor, name: str) -> Tensor:
        """The frame resized and cropped, as far as the configuration says so."""
        if self._config.resized is not None:
            image = smoothly_resized(b, image, *self._config.resized, name=f"{name}.resized")
        if self._config.cropped is not None:
            image = centre_crop(b, image, *self._config.cropped, name=f"{name}.cropped")
        return image

    def _spatial_softmax(self, b: Builder, x: Tensor) -> Tensor:
        """Where, on average, each learned map is active: its coordinates, x before y."""
        height, width, channels = x.shape
        keypoints, pixels = self._config.keypoints, height * width
        rows = b.reshape(x, (pixels, channels), name="pixels")
        filters = self._weights.filters(b, "pool.nets.weight", keypoints, channels, 1)
        weight = b.reshape(filters, (keypoints, channels), name="nets")
        bias = self._weights.constant(b, "pool.nets.bias", keypoints)
        maps = b.transpose(b.linear(rows, weight, bias, name="maps"), (1, 0), name="by_map")
        grid = b.constant(f"{self._weights.prefix}pool.pos_grid", self._coordinates(pixels))
        points = b.linear(b.softmax(maps, name="attention"), grid, name="points")
        return b.reshape(points, (1, 2 * keypoints), name="coordinates")

    def _coordinates(self, pixels: int) -> Array:
        """Each pixel's position, as stored with the weights: a row of x, a row of y."""
        stored = self._weights.array("pool.pos_grid", (pixels, 2))
        return self._weights.made(("coordinates", pixels), lambda: np.ascontiguousarray(stored.T))
