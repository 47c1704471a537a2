"""Camera messages to RGB arrays: checked, then converted by cv_bridge where installed, else by OpenCV."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from vla_simd_ros.policies.base import CameraSpec

try:
    from cv_bridge import CvBridge
except ImportError:
    CvBridge = None

Picture = npt.NDArray[np.uint8]

CHANNELS = {"rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4}
"""Channels of each encoding that is accepted. Grey and raw Bayer pictures are not what a policy was
trained on, and 8UC3 does not say its colour order."""

_TO_RGB = {"bgr8": cv2.COLOR_BGR2RGB, "rgba8": cv2.COLOR_RGBA2RGB, "bgra8": cv2.COLOR_BGRA2RGB}


class ImageError(Exception):
    """A picture that cannot be used; the text names the camera, what came and what was expected."""


def check_image(message: Any, camera: str, spec: CameraSpec) -> None:
    """Check size, encoding, step and data length of a sensor_msgs/Image.

    Raises:
        ImageError: one of them is not what the checkpoint, or the message itself, calls for.
    """
    channels = CHANNELS.get(message.encoding)
    if channels is None or (message.height, message.width) != (spec.height, spec.width):
        raise ImageError(
            f"camera '{camera}': got {message.width}x{message.height} {message.encoding}, "
            f"the checkpoint expects {spec.width}x{spec.height} rgb8 (or {', '.join(list(CHANNELS)[1:])})"
        )
    if message.step < message.width * channels:
        raise ImageError(
            f"camera '{camera}': step is {message.step} bytes, expected at least "
            f"{message.width} x {channels} = {message.width * channels} for {message.encoding}"
        )
    if len(message.data) != message.step * message.height:
        raise ImageError(
            f"camera '{camera}': {len(message.data)} bytes of data, expected step x height = "
            f"{message.step} x {message.height} = {message.step * message.height}"
        )


def rgb(message: Any, camera: str, spec: CameraSpec) -> Picture:
    """The picture of a sensor_msgs/Image or CompressedImage, uint8 ``[height, width, 3]`` RGB.

    Raises:
        ImageError: see :func:`check_image`; also a compressed picture that cannot be decoded.
    """
    if not hasattr(message, "encoding"):
        return _decoded(message, camera, spec)
    check_image(message, camera, spec)
    # cv_bridge shears a picture whose rows do not end on a whole pixel, and with NumPy 2 it fails on the
    # claim of a byte order, which means nothing for single bytes.
    if CvBridge is None or message.step % CHANNELS[message.encoding] or message.is_bigendian:
        return opencv_rgb(message)
    picture: Picture = CvBridge().imgmsg_to_cv2(message, "rgb8")
    return np.ascontiguousarray(picture)


def opencv_rgb(message: Any) -> Picture:
    """A checked sensor_msgs/Image as RGB by OpenCV alone."""
    channels = CHANNELS[message.encoding]
    rows = np.frombuffer(message.data, dtype=np.uint8).reshape(message.height, message.step)
    picture = rows[:, : message.width * channels].reshape(message.height, message.width, channels)
    if message.encoding in _TO_RGB:
        return np.asarray(cv2.cvtColor(picture, _TO_RGB[message.encoding]), dtype=np.uint8)
    return np.ascontiguousarray(picture)


def _decoded(message: Any, camera: str, spec: CameraSpec) -> Picture:
    data = np.frombuffer(message.data, dtype=np.uint8)
    decoded = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if data.size else None
    if decoded is None:
        raise ImageError(f"camera '{camera}': {data.size} bytes of '{message.format}' cannot be decoded")
    got = f"{decoded.shape[1]}x{decoded.shape[0]} with {decoded[0, 0].size} channels of {decoded.dtype}"
    if decoded.shape != (spec.height, spec.width, 3) or decoded.dtype != np.uint8:
        raise ImageError(
            f"camera '{camera}': the compressed picture is {got}, "
            f"the checkpoint expects {spec.width}x{spec.height} with 3 channels of uint8"
        )
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB), dtype=np.uint8)
