"""Every encoding against a picture whose values are known, or a formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vla_simd_ros.nodes.encodings import ENCODINGS

HEIGHT, WIDTH = 6, 8
PICTURE = np.random.default_rng(5).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
COLOUR = (200, 120, 40)


def rgb(name: str, values: np.ndarray, big_endian: bool = False, padding: int = 0) -> np.ndarray:
    rows: Any = np.ascontiguousarray(values).view(np.uint8).reshape(HEIGHT, -1)
    return ENCODINGS[name].rgb(np.pad(rows, ((0, 0), (0, padding)), constant_values=9), WIDTH, big_endian)


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize(("name", "order"), [("rgb16", [0, 1, 2]), ("bgr16", [2, 1, 0])])
def test_16_bits_become_8(name: str, order: list[int], big_endian: bool) -> None:
    wide = PICTURE[:, :, order].astype(np.uint16) * 257
    sent = wide.astype(">u2" if big_endian else "<u2")
    for padding in (0, 6):
        assert np.array_equal(rgb(name, sent, big_endian, padding), PICTURE)


@pytest.mark.parametrize("big_endian", [False, True])
def test_a_grey_picture_has_its_value_in_every_channel(big_endian: bool) -> None:
    grey = PICTURE[:, :, 0]
    expected = np.repeat(grey[:, :, None], 3, axis=2)
    assert np.array_equal(rgb("mono8", grey), expected)
    wide = (grey.astype(np.uint16) * 257).astype(">u2" if big_endian else "<u2")
    assert np.array_equal(rgb("mono16", wide, big_endian), expected)


def yuv(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """BT.601 for television: luma 16 to 235, chroma 16 to 240."""
    red, green, blue = (picture[:, :, i].astype(float) for i in range(3))
    luma = 16 + (65.481 * red + 128.553 * green + 24.966 * blue) / 255
    u = 128 + (-37.797 * red - 74.203 * green + 112.0 * blue) / 255
    v = 128 + (112.0 * red - 93.786 * green - 18.214 * blue) / 255
    return tuple(np.rint(plane).astype(np.uint8) for plane in (luma, u, v))  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["yuv422", "uyvy", "yuv422_yuy2", "yuyv"])
def test_yuv_422(name: str) -> None:
    # Pairs of pixels of one colour: they share their chroma.
    picture = np.repeat(PICTURE[:, ::2], 2, axis=1)
    luma, u, v = yuv(picture)
    chroma = np.where(np.arange(WIDTH) % 2 == 0, u, v)
    pair = (chroma, luma) if name in ("yuv422", "uyvy") else (luma, chroma)
    result = rgb(name, np.stack(pair, axis=2)).astype(int)
    assert np.abs(result - picture).max() <= 3


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("bits", [8, 16])
def test_bayer(pattern: str, bits: int) -> None:
    by_letter = dict(zip("rgb", COLOUR, strict=True))
    cell = np.array([by_letter[letter] for letter in pattern], np.uint8).reshape(2, 2)
    mosaic = np.tile(cell, (HEIGHT // 2, WIDTH // 2))
    values = mosaic if bits == 8 else mosaic.astype("<u2") * 257
    result = rgb(f"bayer_{pattern}{bits}", values)
    assert np.array_equal(result[1:-1, 1:-1], np.full((HEIGHT - 2, WIDTH - 2, 3), COLOUR, np.uint8))
