"""Camera messages to RGB, by OpenCV and, with the same results, by cv_bridge."""

from __future__ import annotations

import importlib
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage, Image

from vla_simd_ros.nodes.encodings import ENCODINGS
from vla_simd_ros.nodes.images import ImageError, PictureSettings, check_image, opencv_rgb
from vla_simd_ros.nodes.images import rgb as rgb_with
from vla_simd_ros.policies.base import CameraSpec

SPEC = CameraSpec(height=6, width=8)
PICTURE = np.random.default_rng(5).integers(0, 256, (6, 8, 3), dtype=np.uint8)

EXACTLY = PictureSettings()
RESIZED = PictureSettings(resize=True)


def rgb(message: Any, camera: str, spec: CameraSpec, settings: PictureSettings = EXACTLY) -> np.ndarray:
    return rgb_with(message, camera, spec, settings)


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


@pytest.mark.parametrize("encoding", ORDERS)
@pytest.mark.parametrize("padding", [0, 5, 12])
def test_every_accepted_encoding_becomes_rgb(encoding: str, padding: int) -> None:
    result = rgb(image(encoding, padding), "front", SPEC)
    assert np.array_equal(result, PICTURE)
    assert result.flags.c_contiguous and result.dtype == np.uint8
    assert np.array_equal(opencv_rgb(image(encoding, padding), ENCODINGS[encoding]), PICTURE)


def test_a_byte_order_means_nothing_for_single_bytes() -> None:
    assert np.array_equal(rgb(image(is_bigendian=1), "front", SPEC), PICTURE)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (image(picture=PICTURE[:, :4]), "got 4x6 rgb8, the checkpoint expects 8x6"),
        (image(picture=PICTURE[:3]), "got 8x3 rgb8, the checkpoint expects 8x6"),
    ],
)
def test_a_wrong_size_is_an_error(message: Image, words: str) -> None:
    with pytest.raises(ImageError, match=f"camera 'front': {words}"):
        check_image(message, "front", SPEC, EXACTLY)


@pytest.mark.parametrize("encoding", ["8UC1", "16UC1", "nv21", "32FC1", ""])
def test_a_wrong_encoding_is_an_error(encoding: str) -> None:
    message = image()
    message.encoding = encoding
    words = f"camera 'wrist': got the encoding '{encoding}', expected one of rgb8, bgr8"
    with pytest.raises(ImageError, match=words):
        rgb(message, "wrist", SPEC)


@pytest.mark.parametrize("order", ["rgb8", "bgr8"])
def test_the_order_of_unnamed_colours_is_a_setting(order: str) -> None:
    message = image(order)
    message.encoding = "8UC3"
    assert np.array_equal(rgb(message, "front", SPEC, PictureSettings(unnamed_colours=order)), PICTURE)


def test_a_mosaic_of_odd_size_is_an_error() -> None:
    message = Image(height=5, width=8, encoding="bayer_rggb8", step=8, data=bytes(40))
    with pytest.raises(ImageError, match="got 8x5 bayer_rggb8, expected even sizes"):
        rgb(message, "front", CameraSpec(height=5, width=8))


@pytest.mark.parametrize(("width", "height"), [(2, 6), (8, 2), (2, 2)])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_mosaic_without_colours_is_an_error(width: int, height: int, bits: int) -> None:
    step = width * bits // 8
    message = Image(
        height=height, width=width, encoding=f"bayer_grbg{bits}", step=step, data=bytes(step * height)
    )
    words = f"camera 'front': got {width}x{height} bayer_grbg{bits}, expected at least 4x4 pixels"
    for spec, settings in ((CameraSpec(height=height, width=width), EXACTLY), (SPEC, RESIZED)):
        with pytest.raises(ImageError, match=words):
            rgb(message, "front", spec, settings)


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if not name.startswith("bayer")])
def test_the_smallest_pictures_are_not_black(encoding: str) -> None:
    _assert_bright(encoding, *ENCODINGS[encoding].block)


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("bits", [8, 16])
def test_the_smallest_mosaic_is_not_black(pattern: str, bits: int) -> None:
    _assert_bright(f"bayer_{pattern}{bits}", 4, 4)


def _assert_bright(encoding: str, width: int, height: int) -> None:
    step = width * ENCODINGS[encoding].pixel_bytes
    message = Image(
        height=height, width=width, encoding=encoding, step=step, data=bytes([200]) * (step * height)
    )
    assert rgb(message, "front", CameraSpec(height=height, width=width)).max(axis=2).min() > 100


def test_pictures_of_other_sizes_are_resized_when_asked() -> None:
    grey = np.full((12, 16, 3), 90, np.uint8)
    for message in (image("bgra8", picture=grey), compressed(".png", grey)):
        result = rgb(message, "front", SPEC, RESIZED)
        assert np.array_equal(result, np.full((6, 8, 3), 90, np.uint8))
    with pytest.raises(ImageError, match="got 0x0 rgb8, expected a picture"):
        rgb(Image(encoding="rgb8"), "front", SPEC, RESIZED)


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


def png_claiming(width: int, height: int) -> CompressedImage:
    """A few bytes that say they are a picture of this size."""
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(bytes(1000)),
        b"IEND": b"",
    }
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in parts.items():
        data += (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )
    return CompressedImage(format="png", data=data)


@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("part", [0.4, 0.7, 0.99])
def test_a_jpeg_that_is_cut_short_is_an_error(progressive: int, part: float) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_PROGRESSIVE, progressive])
    whole = data.tobytes()
    start = whole.index(b"\xff\xda")
    cut = whole[: start + round(part * (len(whole) - start - 1))]

    with pytest.raises(ImageError, match=f"camera 'front': {len(cut)} bytes of 'jpeg' "):
        rgb(CompressedImage(format="jpeg", data=cut), "front", SPEC)
    # What some cameras fill a frame up with is no part of the picture.
    assert rgb(CompressedImage(format="jpeg", data=whole + bytes(20)), "front", SPEC).shape == (6, 8, 3)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (CompressedImage(format="jpeg", data=b"not a picture"), "13 bytes of 'jpeg' cannot be decoded"),
        (CompressedImage(format="jpeg", data=b""), "0 bytes of 'jpeg' cannot be decoded"),
        (compressed(".png", PICTURE[:3]), "a compressed picture of 8x3, the checkpoint expects 8x6"),
        (CompressedImage(format="16UC1; compressedDepth png", data=b"1"), "got a depth picture"),
        (png_claiming(60_000, 60_000), "[0-9]+ bytes of 'png' cannot be decoded: pixels <= "),
    ],
)
def test_a_bad_compressed_picture_is_an_error(message: CompressedImage, words: str) -> None:
    with pytest.raises(ImageError, match=f"camera 'front': .*{words}"):
        rgb(message, "front", SPEC)


def test_a_compressed_grey_picture_has_its_value_in_every_channel() -> None:
    result = rgb(compressed(".png", PICTURE[:, :, 0]), "front", SPEC)
    assert np.array_equal(result, np.repeat(PICTURE[:, :, :1], 3, axis=2))


@pytest.mark.needs_cv_bridge
def test_cv_bridge_gives_the_same_pictures() -> None:
    bridge = importlib.import_module("cv_bridge").CvBridge()
    for encoding in ORDERS:
        for padding in (0, 12):
            message = image(encoding, padding)
            ours = opencv_rgb(message, ENCODINGS[encoding])
            assert np.array_equal(bridge.imgmsg_to_cv2(message, "rgb8"), ours)
    random = np.random.default_rng(1)
    for encoding in ("mono8", "yuv422", "yuv422_yuy2", "bayer_rggb8", "bayer_gbrg8", "mono16", "rgb16"):
        row = 8 * ENCODINGS[encoding].pixel_bytes
        data = random.integers(0, 256, row * 6, dtype=np.uint8).tobytes()
        message = Image(height=6, width=8, encoding=encoding, step=row, data=data)
        ours = opencv_rgb(message, ENCODINGS[encoding])
        assert np.array_equal(bridge.imgmsg_to_cv2(message, "rgb8"), ours), encoding
    for extension in (".png", ".jpg"):
        packed = compressed(extension)
        expected = bridge.compressed_imgmsg_to_cv2(packed, "rgb8")
        assert np.array_equal(rgb(packed, "front", SPEC), expected)
