"""What is expected to follow, against the definition written out and against loads that come back."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from vla_simd_ros.hybrid.foresight import Foresight

NOISE = 0.02


def told(slowdowns: Sequence[float], frames: int = 200, noise: float = NOISE) -> Foresight:
    foresight = Foresight(frames)
    for slowdown in slowdowns:
        foresight.take(slowdown, noise)
    return foresight


def likeness(slowdowns: Sequence[float], newest: int, lag: int) -> float:
    """For how many frames the slowdowns up to ``newest`` have been as they were ``lag`` frames before."""
    if newest - lag < 0:
        return 0.0
    away = math.log(slowdowns[newest] / slowdowns[newest - lag]) / (4.0 * NOISE)
    return (1.0 + likeness(slowdowns, newest - 1, lag)) / (1.0 + away**4)


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_what_followed_is_as_likely_as_the_cube_of_the_likeness(ahead: int, seed: int) -> None:
    """The expected values stand for sixths of all: the one in the middle of each, in order."""
    slowdowns = [float(x) for x in np.random.default_rng(seed).choice([1.0, 1.05, 1.5, 2.0], 30)]
    newest = len(slowdowns) - 1
    likely = [(slowdowns[newest], 8.0)]
    for lag in range(ahead, newest + 1):
        likely.append((slowdowns[newest - lag + ahead], likeness(slowdowns, newest, lag) ** 3))
    total = sum(weight for _, weight in likely)
    expected = []
    for sixth in range(6):
        below = 0.0
        for value, weight in sorted(likely):
            below += weight
            if below >= (sixth + 0.5) / 6 * total:
                expected.append(value)
                break
    assert told(slowdowns).expected(ahead) == pytest.approx(expected)


def test_nothing_known_is_taken_to_stay() -> None:
    assert told([1.7]).expected(1) == pytest.approx([1.7] * 6)


@pytest.mark.parametrize("period", [2, 7, 31])
@pytest.mark.parametrize("ahead", [1, 2])
def test_a_load_that_comes_back_is_met_in_time(period: int, ahead: int) -> None:
    rng = np.random.default_rng(period)
    levels = rng.uniform(1.0, 3.0, period)
    slowdowns = [float(x) for x in np.resize(levels, 5 * period) * rng.normal(1.0, 0.005, 5 * period)]
    foresight = told(slowdowns[: 4 * period])
    for at, slowdown in enumerate(slowdowns[4 * period :]):
        foresight.take(slowdown, NOISE)
        assert foresight.expected(ahead).mean() == pytest.approx(levels[(at + ahead) % period], rel=0.1)


def test_beginning_and_end_of_a_burst_are_foreseen() -> None:
    """Slow for 8 frames of 40."""
    cycle = [1.0] * 32 + [2.0] * 8
    foresight = told(cycle * 7, frames=400)
    expected = []
    for slowdown in cycle:
        foresight.take(slowdown, NOISE)
        expected.append(foresight.expected(1).mean())
    assert expected == pytest.approx([*cycle[1:], 1.0], rel=0.1)


def test_of_loads_without_order_all_are_expected_as_often_as_they_are() -> None:
    """Slow in one of three frames, by chance."""
    rng = np.random.default_rng(1)
    foresight = told([float(x) for x in rng.choice([1.0, 1.0, 2.0], 200)])
    slow = []
    for slowdown in rng.choice([1.0, 1.0, 2.0], 100):
        foresight.take(float(slowdown), NOISE)
        slow.append((foresight.expected(1) > 1.5).mean())
    assert np.mean(slow) == pytest.approx(1 / 3, abs=0.1)
    assert np.mean(np.isin(slow, (0.0, 1.0))) < 0.5  # mostly both are possible


def test_what_is_longer_ago_than_its_memory_counts_no_more() -> None:
    slowdowns = [*[1.0, 3.0] * 20, *[2.0] * 10, 1.0]
    assert told(slowdowns, frames=100).expected(1)[-1] == pytest.approx(3.0)
    assert told(slowdowns, frames=10).expected(1) == pytest.approx([1.0] * 6)


def test_noise_hides_no_likeness() -> None:
    """What came after 1.0 is expected after 1.2 where that may be noise, not where it is none."""
    slowdowns = [*[1.0, 3.0] * 20, 1.2]
    assert told(slowdowns, noise=0.05).expected(1) == pytest.approx([3.0] * 6)
    assert told(slowdowns, noise=0.01).expected(1) == pytest.approx([1.2] * 6)


@pytest.mark.parametrize(("frames", "ahead"), [(1, 1), (5, 5), (5, 9)])
def test_farther_ahead_than_it_remembers_all_is_taken_to_stay(frames: int, ahead: int) -> None:
    assert told([2.0, 1.0] * 6, frames).expected(ahead) == pytest.approx([1.0] * 6)
