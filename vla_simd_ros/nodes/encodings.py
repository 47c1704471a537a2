"""The encodings of sensor_msgs/Image that become RGB here, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

_TO_8_BIT = 255.0 / 65535.0


@dataclass(frozen=True)
class Encoding:
    """How a picture's values are laid out.

    ``channels`` values of ``depth`` bytes make a pixel; ``code`` is OpenCV's conversion to RGB, None where
    there is nothing to convert. Width and height are multiples of ``block`` and no less than ``least``.
    """

    channels: int
    code: int | None = None
    depth: int = 1
    block: tuple[int, int] = (1, 1)
    least: tuple[int, int] = (1, 1)

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel."""
        return self.channels * self.depth

    def rgb(self, rows: npt.NDArray[np.uint8], width: int, big_endian: bool) -> npt.NDArray[np.uint8]:
        """The picture in RGB, uint8 [H, W, 3].

        Args:
            rows: bytes, [H, step], with what each row is padded with.
            width: pixels of a row.
            big_endian: byte order of values of more than one byte.
        """
        values: npt.NDArray[Any] = rows[:, : width * self.pixel_bytes]
        if self.depth > 1:
            order = ">u2" if big_endian else "<u2"
            values = np.ascontiguousarray(values).view(order).astype(np.uint16)
        picture: Any = values.reshape(len(rows), width, self.channels)
        if self.code is not None:
            picture = cv2.cvtColor(np.ascontiguousarray(picture), self.code)
        if self.depth > 1:
            picture = cv2.convertScaleAbs(picture, alpha=_TO_8_BIT)
        return np.ascontiguousarray(picture, np.uint8)


# OpenCV names a Bayer pattern after its second row, ROS after its first.
_BAYER = {
    "rggb": cv2.COLOR_BayerBG2RGB,
    "bggr": cv2.COLOR_BayerRG2RGB,
    "gbrg": cv2.COLOR_BayerGR2RGB,
    "grbg": cv2.COLOR_BayerGB2RGB,
}
# The colours of a pixel come from 3x3 of them, at the border from those of its neighbour: OpenCV makes a
# picture without any such neighbour black.
_BLOCK, _LEAST = (2, 2), (4, 4)
_UYVY = Encoding(2, cv2.COLOR_YUV2RGB_UYVY, block=(2, 1))
_YUYV = Encoding(2, cv2.COLOR_YUV2RGB_YUY2, block=(2, 1))

ENCODINGS: dict[str, Encoding] = {
    "rgb8": Encoding(3),
    "bgr8": Encoding(3, cv2.COLOR_BGR2RGB),
    "rgba8": Encoding(4, cv2.COLOR_RGBA2RGB),
    "bgra8": Encoding(4, cv2.COLOR_BGRA2RGB),
    "mono8": Encoding(1, cv2.COLOR_GRAY2RGB),
    "rgb16": Encoding(3, depth=2),
    "bgr16": Encoding(3, cv2.COLOR_BGR2RGB, depth=2),
    "mono16": Encoding(1, cv2.COLOR_GRAY2RGB, depth=2),
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    **{f"bayer_{name}8": Encoding(1, code, 1, _BLOCK, _LEAST) for name, code in _BAYER.items()},
    **{f"bayer_{name}16": Encoding(1, code, 2, _BLOCK, _LEAST) for name, code in _BAYER.items()},
}
"""By the name that sensor_msgs gives them."""

UNNAMED_COLOURS = "8UC3"
"""Three channels whose order the message does not tell."""
