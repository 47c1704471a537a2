"""A convolutional stem before a transformer: weight-standardized convolutions, group norm, patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor
from vla_simd_ros.policies.weights import Weights

_KERNEL, _STRIDE, _PADDING = 3, 2, 1
GROUPS = 32
_GROUP_NORM_EPS = 1e-6
# Added to the deviation, where other implementations of weight standardization add to the variance.
_STANDARDIZATION_EPS = 1e-5


@dataclass(frozen=True)
class StemConfig:
    """Channels of each convolution, which halves the image, width of the tokens, pixels of a patch's side."""

    channels: tuple[int, ...]
    width: int
    patch: int

    @property
    def stride(self) -> int:
        """Pixels of the image to one of the last convolution."""
        return int(_STRIDE ** len(self.channels))


def conv_stem(b: Builder, images: Sequence[Tensor], config: StemConfig, weights: Weights) -> Tensor:
    """The tokens [patches, width] of normalized images that the network sees as one, channel after channel.

    The first convolution is computed image by image and summed, so that an image which never changes is
    convolved once.
    """
    inputs = sum(image.shape[2] for image in images)
    x = images[0]
    for index, channels in enumerate(config.channels):
        kernel = weights.filters(b, f"{index}.conv.weight", channels, inputs, _KERNEL, standardize)
        bias = weights.constant(b, f"{index}.conv.bias", channels)
        if index == 0:
            x = b.add(_first_convolution(b, images, kernel), bias, name="conv0")
        else:
            product = b.conv2d(x, kernel, stride=_STRIDE, padding=_PADDING, name=f"conv{index}.product")
            x = b.add(product, bias, name=f"conv{index}")
        scale, shift = (weights.constant(b, f"{index}.norm.{part}", channels) for part in ("weight", "bias"))
        x = b.group_norm(x, scale, shift, groups=GROUPS, eps=_GROUP_NORM_EPS, name=f"norm{index}")
        x = b.activation("relu", x, name=f"relu{index}")
        inputs = channels
    side = config.patch // config.stride
    filters = weights.filters(b, "embedding.weight", config.width, inputs, side)
    x = b.conv2d(x, filters, stride=side, name="embedding.product")
    x = b.add(x, weights.constant(b, "embedding.bias", config.width), name="embedding")
    rows, columns, width = x.shape
    return b.reshape(x, (rows * columns, width), name="patches")


def _first_convolution(b: Builder, images: Sequence[Tensor], kernel: Tensor) -> Tensor:
    start = 0
    parts = []
    for number, image in enumerate(images):
        stop = start + image.shape[2]
        part = b.slice(kernel, axis=3, start=start, stop=stop, name=f"conv0.kernel{number}")
        parts.append(b.conv2d(image, part, stride=_STRIDE, padding=_PADDING, name=f"conv0.product{number}"))
        start = stop
    total = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        total = b.add(total, part, name=f"conv0.sum{number}")
    return total


def standardize(filters: Array) -> Array:
    """Filters [outputs, kh, kw, inputs], each shifted to mean 0 and scaled to deviation 1."""
    exact = filters.astype(np.float64)
    centred = exact - exact.mean(axis=(1, 2, 3), keepdims=True)
    deviation = exact.std(axis=(1, 2, 3), keepdims=True)
    return np.asarray(centred / (deviation + _STANDARDIZATION_EPS), np.float32)
