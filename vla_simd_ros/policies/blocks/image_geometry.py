"""Resizing and cropping of images inside the graph."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vla_simd_ros.graph.builder import Builder
from vla_simd_ros.graph.images import RESAMPLE_BITS
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


def bicubic(b: Builder, image: Tensor, height: int, width: int, *, name: str) -> Tensor:
    """A uint8 image [H, W, C] in another size, as the Pillow library resizes it: bicubic, smoothed as far as
    it becomes smaller, along rows and then along columns, with integers in between."""
    for axis, wanted in ((1, width), (0, height)):
        given = image.shape[axis]
        if given != wanted:
            first, weights = _cubics(given, wanted)
            part = "yx"[axis]
            image = b.resample(
                image,
                b.constant(f"{name}.{part}.first", first),
                b.constant(f"{name}.{part}.weights", weights),
                axis=axis,
                name=f"{name}.{part}",
            )
    return image


def letterboxed(
    b: Builder, image: Tensor, height: int, width: int, border: float, *, name: str, centred: bool = False
) -> Tensor:
    """A float image [H, W, C] scaled to fit, proportions kept, at the bottom and on the right of
    [height, width, C], or in the middle; the rest has the value ``border``."""
    old_height, old_width, channels = image.shape
    ratio = max(old_width / width, old_height / height)
    x = b.resize(image, int(old_height / ratio), int(old_width / ratio), name=f"{name}.scaled")
    for axis, wanted, part in ((0, height, "lowered"), (1, width, "moved")):
        missing = wanted - x.shape[axis]
        after = missing - missing // 2 if centred else 0
        around = [x]
        for rows, place in ((missing - after, "before"), (after, "after")):
            if rows:
                shape = (rows, x.shape[1], channels) if axis == 0 else (height, rows, channels)
                edge = b.constant(f"{name}.{part}.{place}", _filled(shape, border))
                around = [edge, *around] if place == "before" else [*around, edge]
        x = b.concat(around, axis=axis, name=f"{name}.{part}")
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


@lru_cache(maxsize=64)
def _cubics(given: int, wanted: int) -> tuple[Array, Array]:
    """The first of the pixels ``given`` along a line that each of those ``wanted`` is made of, int32
    [wanted], and the weights of it and of those after it, int32 [wanted, taps] in fixed point.

    A weight is that of a piecewise cubic about the pixel's centre, which reaches two pixels, of the larger
    ones of both sizes, to either side.
    """
    scale = given / wanted
    reach = max(scale, 1.0)
    centre = (np.arange(wanted) + 0.5) * scale
    first = np.maximum((centre - 2 * reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + 2 * reach + 0.5).astype(np.int64), given)
    taps = int((last - first).max())
    # Windows that are cut by the end of the line begin earlier, so that all have as many pixels.
    start = np.minimum(first, given - taps)
    places = start[:, None] + np.arange(taps)
    inside = (places >= first[:, None]) & (places < last[:, None])
    weight = np.where(inside, _cubic((places - centre[:, None] + 0.5) * (1 / reach)), 0.0)
    weight /= np.cumsum(weight, axis=1)[:, -1:]
    fixed = np.trunc(weight * (1 << RESAMPLE_BITS) + np.where(weight < 0, -0.5, 0.5)).astype(np.int32)
    tables = start.astype(np.int32), fixed
    for table in tables:
        table.flags.writeable = False
    return tables


def _cubic(x: Array) -> Array:
    """Keys' cubic with a slope of -1/2 at 1."""
    x = np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))
