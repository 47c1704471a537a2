"""Whether a camera delivers what its stamps promise."""

from __future__ import annotations

import numpy as np

from vla_simd_ros.nodes.camera_health import CameraHealth

PERIOD = 33_333_333


def health(keep: float, jitter: float = 0.0, frames: int = 300, seed: int = 1) -> CameraHealth:
    """A 30 Hz camera of which a share of the frames arrives."""
    rng = np.random.default_rng(seed)
    camera = CameraHealth()
    for i in range(frames):
        if rng.random() < keep:
            stamp = round((i + 10 + rng.uniform(-jitter, jitter)) * PERIOD)
            camera.usable(stamp, stamp + 5_000_000)
    return camera


def test_a_camera_that_delivers_everything_is_fine() -> None:
    for jitter in (0.0, 0.1):
        camera = health(1.0, jitter)
        assert camera.loss("front") is None
        assert (camera.delivered_share() or 0) > 0.8


def test_a_few_lost_frames_are_fine() -> None:
    assert health(0.95).loss("front") is None


def test_refused_frames_are_not_lost_ones() -> None:
    camera = CameraHealth()
    for i in range(60):
        if 10 <= i < 50:
            camera.fault("too small")
        else:
            camera.usable((i + 1) * PERIOD, (i + 1) * PERIOD)
    assert camera.delivered_share() == 1.0
    assert camera.loss("front") is None


def test_many_lost_frames_are_reported_with_what_to_do() -> None:
    text = health(0.4).loss("front") or ""
    assert "camera 'front' delivers 4" in text or "camera 'front' delivers 3" in text
    assert "FASTRTPS_DEFAULT_PROFILES_FILE" in text and "fastdds_large_images.xml" in text


def test_the_advice_names_a_file_that_exists() -> None:
    from pathlib import Path

    assert (Path(__file__).parents[2] / "config" / "fastdds_large_images.xml").is_file()


def test_nothing_is_said_before_enough_frames() -> None:
    assert health(0.4, frames=30).delivered_share() is None


def test_silence_is_measured_from_the_last_usable_frame() -> None:
    camera = CameraHealth()
    assert camera.silent_ns(500, since_ns=100) == 400
    camera.usable(150, 200)
    camera.fault("too small")
    assert camera.silent_ns(500, since_ns=100) == 300
    assert (camera.received, camera.unusable, camera.last_fault) == (2, 1, "too small")
    camera.reset()
    assert camera.silent_ns(500, since_ns=450) == 50
