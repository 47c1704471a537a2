"""Resizing and cropping of images inside the graph."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.ir import Array, Tensor


def centre_crop(b: Builder, image: Tensor, height: int, width: int, *, name: str) -> Tensor:
    """The middle of an image [H, W, C]; a half pixel is rounded to the even side."""
    for axis, extent in enumerate((height, width)):
        start = round((image.shape[axis] - extent) / 2)
        image = b.slice(image, axis=axis, start=start, stop=start + extent, name=f"{name}.{'yx'[axis]}")
    return image


def smoothly_resized(b: Builder, image: Tensor, height: int, width: int, *, name: str) -> Tensor:
    """A float image [H, W, C] in another size, bilinear, smoothed as far as it becomes smaller."""
    rows, columns, channels = image.shape
    by_row = b.reshape(image, (rows, columns * channels), name=f"{name}.rows")
    by_row = b.transpose(by_row, (1, 0), name=f"{name}.by_row")
    by_row = b.linear(by_row, b.constant(f"{name}.y", _triangles(rows, height)), name=f"{name}.lower")
    by_column = b.reshape(by_row, (columns, channels * height), name=f"{name}.columns")
    by_column = b.transpose(by_column, (1, 0), name=f"{name}.by_column")
    by_column = b.linear(
        by_column, b.constant(f"{name}.x", _triangles(columns, width)), name=f"{name}.narrower"
    )
    planes = b.reshape(by_column, (channels, height, width), name=f"{name}.planes")
    return b.transpose(planes, (1, 2, 0), name=name)


def letterboxed(b: Builder, image: Tensor, height: int, width: int, border: float, *, name: str) -> Tensor:
    """A float image [H, W, C] scaled to fit, proportions kept, at the bottom and on the right of
    [height, width, C]; the rest has the value ``border``."""
    old_height, old_width, channels = image.shape
    ratio = max(old_width / width, old_height / height)
    x = b.resize(image, int(old_height / ratio), int(old_width / ratio), name=f"{name}.scaled")
    new_height, new_width, _ = x.shape
    if new_height < height:
        rows = b.constant(f"{name}.above", _filled((height - new_height, new_width, channels), border))
        x = b.concat([rows, x], axis=0, name=f"{name}.lowered")
    if new_width < width:
        columns = b.constant(f"{name}.left", _filled((height, width - new_width, channels), border))
        x = b.concat([columns, x], axis=1, name=f"{name}.moved")
    return x


@lru_cache(maxsize=64)
def _filled(shape: tuple[int, ...], value: float) -> Array:
    return np.full(shape, value, np.float32)


@lru_cache(maxsize=64)
def _triangles(given: int, wanted: int) -> Array:
    """What each of the pixels ``given`` along a line adds to each of those ``wanted``, float32.

    A pixel is the mean of those given, weighted by a triangle about its centre that is two pixels wide, of
    the larger ones of both sizes.
    """
    scale = given / wanted
    reach = max(scale, 1.0)
    centre = (np.arange(wanted)[:, None] + 0.5) * scale
    weight = np.maximum(0.0, 1.0 - np.abs(np.arange(given)[None] + 0.5 - centre) / reach)
    table: Array = (weight / weight.sum(axis=1, keepdims=True)).astype(np.float32)
    table.flags.writeable = False
    return table
