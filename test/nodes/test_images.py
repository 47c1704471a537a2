"""Camera messages to RGB, by OpenCV and, with the same results, by cv_bridge."""

from __future__ import annotations

import importlib
from typing import Any

import cv2
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage, Image

from vla_simd_ros.nodes.images import CHANNELS, ImageError, check_image, opencv_rgb, rgb
from vla_simd_ros.policies.base import CameraSpec

SPEC = CameraSpec(height=6, width=8)
PICTURE = np.random.default_rng(5).integers(0, 256, (6, 8, 3), dtype=np.uint8)

ORDERS = {"rgb8": [0, 1, 2], "bgr8": [2, 1, 0], "rgba8": [0, 1, 2, 3], "bgra8": [2, 1, 0, 3]}


def image(encoding: str = "rgb8", padding: int = 0, picture: np.ndarray = PICTURE, **changes: Any) -> Image:
    alpha = np.full((*picture.shape[:2], 1), 77, dtype=np.uint8)
    pixels = np.concatenate([picture, alpha], axis=2)[:, :, ORDERS[encoding]]
    rows = pixels.reshape(picture.shape[0], -1)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=9)
    message = Image(
        height=picture.shape[0], width=picture.shape[1], encoding=encoding, step=rows.shape[1],
        data=rows.tobytes(),
    )  # fmt: skip
    for name, value in changes.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize("encoding", CHANNELS)
@pytest.mark.parametrize("padding", [0, 5, 12])
def test_every_accepted_encoding_becomes_rgb(encoding: str, padding: int) -> None:
    result = rgb(image(encoding, padding), "front", SPEC)
    assert np.array_equal(result, PICTURE)
    assert result.flags.c_contiguous and result.dtype == np.uint8
    assert np.array_equal(opencv_rgb(image(encoding, padding)), PICTURE)


def test_a_byte_order_means_nothing_for_single_bytes() -> None:
    assert np.array_equal(rgb(image(is_bigendian=1), "front", SPEC), PICTURE)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (image(picture=PICTURE[:, :4]), "got 4x6 rgb8, the checkpoint expects 8x6 rgb8"),
        (image(picture=PICTURE[:3]), "got 8x3 rgb8, the checkpoint expects 8x6 rgb8"),
    ],
)
def test_a_wrong_size_is_an_error(message: Image, words: str) -> None:
    with pytest.raises(ImageError, match=f"camera 'front': {words}"):
        check_image(message, "front", SPEC)


@pytest.mark.parametrize("encoding", ["mono8", "8UC3", "bayer_rggb8", "16UC1", ""])
def test_a_wrong_encoding_is_an_error(encoding: str) -> None:
    message = image()
    message.encoding = encoding
    with pytest.raises(
        ImageError, match=f"camera 'wrist': got 8x6 {encoding}, the checkpoint expects 8x6 rgb8"
    ):
        rgb(message, "wrist", SPEC)


@pytest.mark.parametrize("step", [0, 23])
def test_a_step_shorter_than_a_row_is_an_error(step: int) -> None:
    message = image()
    message.step = step
    with pytest.raises(ImageError, match=f"step is {step} bytes, expected at least 8 x 3 = 24 for rgb8"):
        rgb(message, "front", SPEC)


@pytest.mark.parametrize("length", [0, 143, 145])
def test_data_of_another_length_is_an_error(length: int) -> None:
    message = image()
    message.data = bytes(length)
    with pytest.raises(ImageError, match=f"{length} bytes of data, expected step x height = 24 x 6 = 144"):
        rgb(message, "front", SPEC)


def compressed(extension: str, picture: np.ndarray = PICTURE) -> CompressedImage:
    encoded, data = cv2.imencode(extension, picture)
    assert encoded
    return CompressedImage(format=f"rgb8; {extension[1:]} compressed bgr8", data=data.tobytes())


def test_a_compressed_picture_is_decoded_to_rgb() -> None:
    message = compressed(".png", np.ascontiguousarray(PICTURE[:, :, ::-1]))
    assert np.array_equal(rgb(message, "front", SPEC), PICTURE)


def test_a_jpeg_is_decoded_to_rgb() -> None:
    red = np.zeros((6, 8, 3), dtype=np.uint8)
    red[:, :, 2] = 250
    middle = rgb(compressed(".jpg", red), "front", SPEC)[3, 3].astype(int)
    assert middle.tolist() == pytest.approx([250, 0, 0], abs=6)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (CompressedImage(format="jpeg", data=b"not a picture"), "13 bytes of 'jpeg' cannot be decoded"),
        (CompressedImage(format="jpeg", data=b""), "0 bytes of 'jpeg' cannot be decoded"),
        (compressed(".png", PICTURE[:3]), "is 8x3 with 3 channels of uint8, the checkpoint expects 8x6"),
        (compressed(".png", PICTURE[:, :, 0]), "8x6 with 1 channels of uint8"),
        (compressed(".png", PICTURE.astype(np.uint16)), "8x6 with 3 channels of uint16"),
    ],
)
def test_a_bad_compressed_picture_is_an_error(message: CompressedImage, words: str) -> None:
    with pytest.raises(ImageError, match=f"camera 'front': .*{words}"):
        rgb(message, "front", SPEC)


@pytest.mark.needs_cv_bridge
def test_cv_bridge_gives_the_same_pictures() -> None:
    bridge = importlib.import_module("cv_bridge").CvBridge()
    for encoding in CHANNELS:
        for padding in (0, 12):
            message = image(encoding, padding)
            assert np.array_equal(bridge.imgmsg_to_cv2(message, "rgb8"), opencv_rgb(message))
    for extension in (".png", ".jpg"):
        packed = compressed(extension)
        expected = bridge.compressed_imgmsg_to_cv2(packed, "rgb8")
        assert np.array_equal(rgb(packed, "front", SPEC), expected)
