"""What a stage takes with every cut, by what it took with one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.hybrid.stage_forecast import StageForecast

PLAIN_S = np.array([0.0, 1.0, 2.0])


def forecast() -> StageForecast:
    return StageForecast(PLAIN_S, frames=100)


def test_a_measurement_with_one_cut_tells_of_all() -> None:
    stage = forecast()
    stage.take(1, measured_s=1.5, load=math.nan)
    assert stage.now_s() == pytest.approx([0.0, 1.5, 3.0])
    assert stage.expected_s(1) == pytest.approx(np.tile([0.0, 1.5, 3.0], (6, 1)))


@pytest.mark.parametrize(
    ("place", "measured_s"), [(0, 0.0), (0, 1.0), (-1, 1.0), (3, 1.0), (1, math.nan), (1, 0.0)]
)
def test_the_load_tells_where_the_frame_does_not(place: int, measured_s: float) -> None:
    stage = forecast()
    stage.take(place, measured_s, load=0.75)
    assert stage.now_s() == pytest.approx(4.0 * PLAIN_S)


@pytest.mark.parametrize("load", [math.nan, 1.0, -0.5])
def test_where_neither_tells_it_stays(load: float) -> None:
    stage = forecast()
    stage.take(1, 1.5, 0.0)
    stage.take(0, 0.0, load)
    assert stage.now_s() == pytest.approx(1.5 * PLAIN_S)


def test_what_comes_back_is_expected_frames_ahead() -> None:
    stage = forecast()
    for measured_s in [1.0, 1.0, 2.0] * 20:
        stage.take(1, measured_s, math.nan)
    for ahead, slowdown in enumerate((1.0, 1.0, 2.0, 1.0), 1):
        assert stage.expected_s(ahead)[:, 2] == pytest.approx(2.0 * np.full(6, slowdown))
