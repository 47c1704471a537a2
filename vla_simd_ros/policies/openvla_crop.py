"""The middle of a frame, as OpenVLA sees it where it was fine-tuned with random crops.

What it was trained on were parts of frames, in the size of the whole; the published evaluation shows it the
middle, cut out by TensorFlow's ``crop_and_resize``. That interpolates linearly between the centres of the
outermost pixels of the part, in float32, and becomes bytes again after it.
"""

from __future__ import annotations

import numpy as np

from vla_simd_ros.graph.ir import Array

_F32 = np.float32


class CentreCrop:
    """``area`` of a frame, above 0 and up to 1, about its middle and of its proportions, from frames of
    ``height`` times ``width`` pixels to a square of ``side``, which is at least 2."""

    def __init__(self, area: float, height: int, width: int, side: int) -> None:
        self._rows = _places(area, height, side)
        self._columns = _places(area, width, side)

    def __call__(self, frame: Array) -> Array:
        """The part of ``frame``, uint8 [height, width, channels]: uint8 [side, side, channels]."""
        (top, bottom, down), (left, right, across) = self._rows, self._columns
        scaled = frame.astype(_F32) * _F32(1 / 255)
        across, down = across[None, :, None], down[:, None, None]
        lines = scaled[:, left] + (scaled[:, right] - scaled[:, left]) * across
        part = lines[top] + (lines[bottom] - lines[top]) * down
        # As a float in 0 to 1 becomes a byte there: each of 256 values has as large a share.
        middle: Array = np.minimum(part * _F32(255.5), _F32(255)).astype(np.uint8)
        return middle


def _places(area: float, extent: int, side: int) -> tuple[Array, Array, Array]:
    """For each of ``side`` places along a line of ``extent`` pixels: the pixels before and behind it, and how
    far it is from the one to the other."""
    share = np.sqrt(_F32(area))
    start = (_F32(1) - share) / _F32(2)
    end = start + share
    step = (end - start) * _F32(extent - 1) / _F32(side - 1)
    place = np.minimum(start * _F32(extent - 1) + np.arange(side, dtype=_F32) * step, _F32(extent - 1))
    before = np.floor(place)
    return before.astype(np.intp), np.ceil(place).astype(np.intp), place - before
