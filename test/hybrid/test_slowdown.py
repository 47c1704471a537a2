"""Noise around a factor, told from changes of it."""

from __future__ import annotations

import numpy as np
import pytest

from vla_simd_ros.hybrid.slowdown import Slowdown


def settled(noise: float, factor: float = 1.0) -> Slowdown:
    slowdown = Slowdown()
    for drawn in np.random.default_rng(2).normal(factor, noise * factor, 300):
        slowdown.take(float(drawn))
    return slowdown


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.04])
def test_noise_is_measured_and_averaged_out(noise: float) -> None:
    slowdown = settled(noise, 3.0)
    assert slowdown.noise == pytest.approx(noise, rel=0.4)
    assert slowdown.value == pytest.approx(3.0, rel=1.2 * noise)


def test_a_change_is_taken_at_once_and_its_end_too() -> None:
    slowdown = settled(0.02)
    slowdown.take(1.5)
    assert slowdown.value == 1.5
    slowdown.take(1.52)
    assert slowdown.value == pytest.approx(1.51)
    slowdown.take(1.0)
    assert slowdown.value == 1.0


def test_a_slow_drift_is_followed() -> None:
    slowdown = settled(0.02)
    for step in range(200):
        drawn = 1.0 + 0.005 * step
        slowdown.take(drawn)
        assert slowdown.value == pytest.approx(drawn, rel=0.1)


def test_two_in_a_row_to_the_same_side_are_a_change() -> None:
    """Each alone might be noise."""
    slowdown = settled(0.02)
    before = slowdown.value
    slowdown.take(before * 1.075)
    assert slowdown.value == pytest.approx(1.0075 * before)
    slowdown.take(before * 1.075)
    assert slowdown.value == pytest.approx(1.075 * before)


def test_two_in_a_row_to_different_sides_are_noise() -> None:
    slowdown = settled(0.02)
    before = slowdown.value
    slowdown.take(before * 1.075)
    slowdown.take(before * 0.925)
    assert slowdown.value == pytest.approx(before, rel=0.01)


def test_more_than_the_most_is_no_noise() -> None:
    """A load that is another one in every frame is followed from frame to frame."""
    slowdown = Slowdown()
    for factor in (1.0, 4.0, 2.0, 3.0) * 50:
        slowdown.take(factor)
    assert slowdown.noise == 0.05
    for factor in (4.0, 2.0, 1.5):
        slowdown.take(factor)
        assert slowdown.value == factor


def test_one_change_is_not_taken_for_noise() -> None:
    slowdown = settled(0.02)
    before = slowdown.noise
    slowdown.take(4.0)
    assert slowdown.noise < 1.1 * before
