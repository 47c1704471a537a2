"""What windows over an image compute, in numpy."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.ir import Array
from vla_simd_ros.graph.state import check_range
from vla_simd_ros.graph.window import Window, conv_output

_PATCH_BYTES = 32 << 20
RESAMPLE_BITS = 22
"""Weights of :func:`resample` are in so many binary places."""


def convolve(x: Array, weight: Array, window: Window) -> Array:
    """The convolution of an image [H, W, Cin] with filters [Cout, kh, kw, Cin]."""
    out_channels, kernel_h, kernel_w, channels = weight.shape
    (down, right), dilation = window.stride, window.dilation
    height, width = window.out_size(x.shape[:2], (kernel_h, kernel_w))
    padded = np.pad(x, (*window.padding, (0, 0)))
    flat = np.ascontiguousarray(weight.reshape(out_channels, -1).T)
    product = np.empty((height, width, out_channels), x.dtype)
    block = max(1, _PATCH_BYTES // (width * flat.shape[0] * x.itemsize))
    for row in range(0, height, block):
        rows = min(block, height - row)
        patches = np.empty((rows, width, kernel_h, kernel_w, channels), x.dtype)
        for i in range(kernel_h):
            top = row * down + i * dilation
            lines = padded[top : top + (rows - 1) * down + 1 : down]
            for j in range(kernel_w):
                left = j * dilation
                patches[:, :, i, j] = lines[:, left : left + (width - 1) * right + 1 : right]
        product[row : row + rows] = (patches.reshape(rows * width, -1) @ flat).reshape(rows, width, -1)
    return product


def max_pool(x: Array, kernel: int, stride: int, padding: int) -> Array:
    """The maximum over square windows of an image [H, W, C]; padding never wins."""
    height = conv_output(x.shape[0], kernel, stride, padding)
    width = conv_output(x.shape[1], kernel, stride, padding)
    padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)), constant_values=-np.inf)
    result = np.full((height, width, x.shape[2]), -np.inf, x.dtype)
    for i in range(kernel):
        lines = padded[i : i + (height - 1) * stride + 1 : stride]
        for j in range(kernel):
            np.maximum(result, lines[:, j : j + (width - 1) * stride + 1 : stride], out=result)
    return result


def resize_bilinear(x: Array, height: int, width: int) -> Array:
    """An image [H, W, C] in another size: bilinear between the centres of pixels, the border repeated."""
    for axis, size in enumerate((height, width)):
        low, high, share = _neighbours(x.shape[axis], size)
        share = share.astype(x.dtype).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        x = x.take(low, axis) * (1 - share) + x.take(high, axis) * share
    return x


def resample(x: Array, first: Array, weights: Array, axis: int) -> Array:
    """An image [H, W, C] of uint8 whose pixels along ``axis`` are weighted sums of neighbours: those from
    ``first[r]`` on times row r of ``weights``."""
    taps = weights.shape[1]
    check_range("the last neighbour", first + (taps - 1), x.shape[axis], "axis")
    check_range("the first neighbour", first, x.shape[axis], "axis")
    pixels = np.moveaxis(x, axis, 0).astype(np.int32)
    sums = np.full((len(first), *pixels.shape[1:]), 1 << (RESAMPLE_BITS - 1), np.int32)
    for tap in range(taps):
        sums += weights[:, tap, None, None] * pixels[first + tap]
    result = np.clip(sums >> RESAMPLE_BITS, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))


def _neighbours(source: int, target: int) -> tuple[Array, Array, Array]:
    """For each place of the result the two places it lies between, and the share of the second."""
    centres = np.maximum((np.arange(target) + 0.5) * (source / target) - 0.5, 0)
    low = np.minimum(centres.astype(np.int64), source - 1)
    return low, np.minimum(low + 1, source - 1), centres - low
