"""Robot units to network units and back."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.checkpoints.normalization import Normalizer, Unnormalizer
from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor


def normalized_image(b: Builder, image: Tensor, normalizer: Normalizer, *, name: str) -> Tensor:
    """A uint8 image scaled to [0, 1], then normalized channel by channel."""
    offset = b.constant(f"{name}.offset", normalizer.offset)
    divisor = b.constant(f"{name}.divisor", normalizer.divisor)
    normalized = b.normalize_image(image, offset, divisor, name=name)
    return _shifted(b, normalized, normalizer, name)


def normalized_vector(b: Builder, x: Tensor, normalizer: Normalizer, *, name: str) -> Tensor:
    """A vector [1, C] normalized element by element."""
    if normalizer.offset.any():
        x = b.binary("sub", x, b.constant(f"{name}.offset", normalizer.offset), name=f"{name}.centred")
    if not _all_one(normalizer.divisor):
        x = b.binary("div", x, b.constant(f"{name}.divisor", normalizer.divisor), name=name)
    return _shifted(b, x, normalizer, name)


def unnormalized(b: Builder, x: Tensor, unnormalizer: Unnormalizer, *, name: str) -> Tensor:
    """Rows [M, C] in robot units again."""
    if not _all_one(unnormalizer.scale):
        x = b.binary("mul", x, b.constant(f"{name}.scale", unnormalizer.scale), name=f"{name}.scaled")
    if unnormalizer.offset.any():
        x = b.add(x, b.constant(f"{name}.offset", unnormalizer.offset), name=name)
    return x


def to_both_sides_of_zero(normalizer: Normalizer) -> Normalizer:
    """``normalizer`` followed by 2 y - 1."""
    half = normalizer.divisor / np.float32(2)
    shift = None if normalizer.shift is None else 2 * normalizer.shift
    return Normalizer(normalizer.feature, normalizer.mode, normalizer.offset + half, half, shift)


def _shifted(b: Builder, x: Tensor, normalizer: Normalizer, name: str) -> Tensor:
    if normalizer.shift is None:
        return x
    return b.add(x, b.constant(f"{name}.shift", normalizer.shift), name=f"{name}.shifted")


def _all_one(values: Array) -> bool:
    return bool((values == 1).all())
