"""Images of any size in one of a fixed size, their proportions kept."""

from __future__ import annotations

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Tensor
from vla_simd_ros.policies.weights import Weights


def letterboxed(
    b: Builder, image: Tensor, height: int, width: int, border: float, weights: Weights, *, name: str
) -> Tensor:
    """``image`` [H, W, C] scaled to fit, at the bottom and on the right of [height, width, C], the rest of
    which has the value ``border``."""
    old_height, old_width, channels = image.shape
    ratio = max(old_width / width, old_height / height)
    x = b.resize(image, int(old_height / ratio), int(old_width / ratio), name=f"{name}.resized")
    new_height, new_width, _ = x.shape
    if new_height < height:
        shape = height - new_height, new_width, channels
        rows = weights.filled(b, f"{name}.border", border, *shape)
        x = b.concat([rows, x], axis=0, name=f"{name}.lowered")
    if new_width < width:
        shape = height, width - new_width, channels
        columns = weights.filled(b, f"{name}.side_border", border, *shape)
        x = b.concat([columns, x], axis=1, name=f"{name}.moved_right")
    return x
