"""Camera messages to RGB arrays: checked, then converted by cv_bridge where installed, else by OpenCV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from vla_simd_ros.nodes.encodings import ENCODINGS, UNNAMED_COLOURS, Encoding
from vla_simd_ros.pictures import Picture, resize
from vla_simd_ros.policies.base import CameraSpec

try:
    from cv_bridge import CvBridge
except ImportError:
    CvBridge = None
_BRIDGE = None if CvBridge is None else CvBridge()

COLOUR_ORDERS = ("bgr8", "rgb8")
# Those that cv_bridge converts to the same values in every version of it.
_BRIDGED = ("rgb8", "bgr8", "rgba8", "bgra8", "mono8")
_DEPTH_FORMAT = "compressedDepth"
# Markers of a JPEG: its start, that of a scan and its end. No scan has the last two in it.
_JPEG_START, _JPEG_SCAN, _JPEG_END = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"


class ImageError(Exception):
    """A picture that cannot be used; the text names the camera, what came and what was expected."""


@dataclass(frozen=True)
class PictureSettings:
    """How pictures are taken: resized where they have another size than the policy's, and the colour order of
    the encoding 8UC3, which does not tell."""

    resize: bool = False
    unnamed_colours: str = "bgr8"


def check_image(message: Any, camera: str, spec: CameraSpec, settings: PictureSettings) -> Encoding:
    """Check size, encoding, step and data length of a sensor_msgs/Image; its encoding.

    Raises:
        ImageError: one of them is not what the checkpoint, or the message itself, calls for.
    """
    name = settings.unnamed_colours if message.encoding == UNNAMED_COLOURS else message.encoding
    encoding = ENCODINGS.get(name)
    size = f"{message.width}x{message.height}"
    if encoding is None:
        known = ", ".join([*ENCODINGS, UNNAMED_COLOURS])
        raise ImageError(f"camera '{camera}': got the encoding '{message.encoding}', expected one of {known}")
    _check_size(message.width, message.height, f"{size} {message.encoding}", camera, spec, settings)
    if message.width % encoding.block[0] or message.height % encoding.block[1]:
        raise ImageError(f"camera '{camera}': got {size} {message.encoding}, expected even sizes")
    if message.width < encoding.least[0] or message.height < encoding.least[1]:
        least = "x".join(map(str, encoding.least))
        raise ImageError(
            f"camera '{camera}': got {size} {message.encoding}, expected at least {least} pixels: "
            "a smaller mosaic has no colours"
        )
    row = message.width * encoding.pixel_bytes
    if message.step < row:
        raise ImageError(
            f"camera '{camera}': step is {message.step} bytes, expected at least "
            f"{message.width} x {encoding.pixel_bytes} = {row} for {message.encoding}"
        )
    if len(message.data) != message.step * message.height:
        raise ImageError(
            f"camera '{camera}': {len(message.data)} bytes of data, expected step x height = "
            f"{message.step} x {message.height} = {message.step * message.height}"
        )
    return encoding


def rgb(
    message: Any,
    camera: str,
    spec: CameraSpec,
    settings: PictureSettings,
    encoding: Encoding | None = None,
) -> Picture:
    """The picture of a sensor_msgs/Image or CompressedImage, uint8 ``[height, width, 3]`` RGB.

    ``encoding`` is what :func:`check_image` gave for the same message, where it has been checked already.

    Raises:
        ImageError: see :func:`check_image`; also a compressed picture that cannot be decoded.
    """
    if not hasattr(message, "encoding"):
        picture = _decoded(message, camera, spec, settings)
    else:
        picture = _converted(message, encoding or check_image(message, camera, spec, settings))
    return resize(picture, spec.height, spec.width)


def opencv_rgb(message: Any, encoding: Encoding) -> Picture:
    """A checked sensor_msgs/Image as RGB by OpenCV alone."""
    rows = np.frombuffer(message.data, dtype=np.uint8).reshape(message.height, message.step)
    return encoding.rgb(rows, message.width, bool(message.is_bigendian))


def _converted(message: Any, encoding: Encoding) -> Picture:
    # cv_bridge shears a picture whose rows do not end on a whole pixel, and with NumPy 2 it fails on the
    # claim of a byte order, which means nothing for single bytes.
    whole_pixels = message.step % encoding.pixel_bytes == 0 and not message.is_bigendian
    if _BRIDGE is None or message.encoding not in _BRIDGED or not whole_pixels:
        return opencv_rgb(message, encoding)
    picture: Picture = _BRIDGE.imgmsg_to_cv2(message, "rgb8")
    return np.ascontiguousarray(picture)


def _decoded(message: Any, camera: str, spec: CameraSpec, settings: PictureSettings) -> Picture:
    if _DEPTH_FORMAT in message.format:
        raise ImageError(f"camera '{camera}': got a depth picture ('{message.format}'), expected colours")
    data = bytes(message.data)
    got = f"camera '{camera}': {len(data)} bytes of '{message.format}'"
    if _is_cut_short(data):
        raise ImageError(f"{got} end in the middle of the picture, expected a whole JPEG")
    # The pixels as they are: a policy was trained on what the sensor sent, not on what a viewer would turn.
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        decoded = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags) if data else None
    except cv2.error as error:  # a size that no camera has
        raise ImageError(f"{got} cannot be decoded: {error.err}") from error
    if decoded is None:
        raise ImageError(f"{got} cannot be decoded")
    height, width = decoded.shape[:2]
    _check_size(width, height, f"a compressed picture of {width}x{height}", camera, spec, settings)
    return np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB), dtype=np.uint8)


def _is_cut_short(data: bytes) -> bool:
    """Whether a JPEG lacks its end: not every OpenCV refuses it, some make up the rest of the picture."""
    return data.startswith(_JPEG_START) and data.rfind(_JPEG_END) < data.rfind(_JPEG_SCAN)


def _check_size(
    width: int, height: int, got: str, camera: str, spec: CameraSpec, settings: PictureSettings
) -> None:
    if 0 in (width, height):
        raise ImageError(f"camera '{camera}': got {got}, expected a picture")
    if not settings.resize and (width, height) != (spec.width, spec.height):
        raise ImageError(
            f"camera '{camera}': got {got}, the checkpoint expects {spec.width}x{spec.height} "
            "(the parameter resize_images allows others)"
        )
