"""When the first stage begins, on a clock of the test's, and what becomes of interval and age."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from vla_simd_ros.hybrid.prefix_start import PrefixStart

FRAMES = 400


def known(prefix: float, suffix: float) -> PrefixStart:
    """Three frames are through."""
    start = PrefixStart()
    for _ in range(3):
        start.ended("prefix", prefix)
        start.began("suffix", 0.0)
        start.ended("suffix", suffix)
    return start


def test_it_begins_as_late_as_the_second_stage_allows() -> None:
    start = known(2.0, 5.0)
    start.began("suffix", 10.0)
    assert start.wait_s(10.5) == pytest.approx(2.5)  # from 13 to 15, when the second is free
    assert start.wait_s(13.0) == 0.0
    assert start.wait_s(99.0) == 0.0


def test_nothing_waits_for_a_second_stage_that_is_free() -> None:
    start = known(2.0, 5.0)
    assert start.wait_s(10.0) == 0.0
    start.began("suffix", 10.0)
    start.ended("suffix", None)  # it could make nothing of the frame
    assert start.wait_s(10.1) == 0.0


def test_a_frame_between_the_stages_comes_first() -> None:
    start = known(2.0, 5.0)
    start.began("suffix", 10.0)
    start.ended("prefix", 2.0)
    assert start.wait_s(12.0) == pytest.approx(6.0)  # free at 15, again at 20
    start.ended("suffix", 5.0)
    assert start.wait_s(15.0) == pytest.approx(3.0)  # the second stage is about to begin on it
    start.began("suffix", 15.0)
    assert start.wait_s(15.0) == pytest.approx(3.0)


def test_a_first_stage_that_is_the_slower_one_never_waits() -> None:
    start = known(5.0, 2.0)
    start.began("suffix", 10.0)
    assert start.wait_s(10.0) == 0.0


def test_the_longest_and_the_shortest_of_lately_count() -> None:
    start = known(2.0, 5.0)
    start.ended("prefix", 3.0)
    start.began("suffix", 0.0)
    start.ended("suffix", 4.5)
    start.began("suffix", 10.0)
    assert start.wait_s(10.0) == pytest.approx(1.5)


def test_nothing_waits_before_times_are_known() -> None:
    start = PrefixStart()
    start.began("suffix", 0.0)
    assert start.wait_s(0.0) == 0.0


@dataclass
class Run:
    """Means: from result to result, and from where a frame's first stage began to its result."""

    interval_s: float
    age_s: float
    in_vain: int


def run(prefix_s: float, suffix_s: float, noise: float, late: bool) -> Run:
    """Two stages with one place between them, a new frame whenever the first begins, event by event."""
    drawn = np.random.default_rng(8).normal(1.0, noise, (8 * FRAMES, 2)).clip(0.5)
    start, ends, ages = PrefixStart(), [], []
    now, vain, began = 0.0, 0, 0
    between: float | None = None  # when the frame's first stage had begun
    first: tuple[float, float] | None = None  # end and beginning of what runs
    second: tuple[float, float, float] | None = None  # end, its beginning, that of the first stage
    while len(ends) < FRAMES:
        if second is None and between is not None:
            second, between = (now + suffix_s * drawn[len(ends), 1], now, between), None
            start.began("suffix", now)
        wait_s = start.wait_s(now) if late else 0.0
        if first is None and wait_s <= 1e-12:
            first = now + prefix_s * drawn[began, 0], now
            start.began("prefix", now)
            began += 1
        events = [event[0] for event in (first, second) if event is not None]
        now = min([*events, *([now + wait_s] if first is None else [])])
        if first is not None and first[0] <= now:
            vain += between is not None
            between = first[1]
            start.ended("prefix", first[0] - first[1])
            first = None
        if second is not None and second[0] <= now:
            ends.append(now)
            ages.append(now - second[2])
            start.ended("suffix", second[0] - second[1])
            second = None
    settled = slice(20, None)
    steps = [b - a for a, b in pairwise(ends[settled])]
    return Run(float(np.mean(steps)), float(np.mean(ages[settled])), vain)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("prefix_s", [0.017, 0.043, 0.06, 0.09, 0.1, 0.14])
def test_results_come_as_often_and_are_younger(prefix_s: float, noise: float) -> None:
    at_once, late = (run(prefix_s, 0.1, noise, each) for each in (False, True))
    assert late.interval_s <= 1.008 * at_once.interval_s
    assert late.age_s <= 1.001 * at_once.age_s
    if prefix_s < 0.1:
        # What is left of the waiting is how far the longest and the shortest are from the others.
        assert late.age_s <= prefix_s + 0.1 * (1 + 1e-9 + 4 * noise)
        assert late.in_vain <= 0.02 * at_once.in_vain + 1


def test_a_stage_that_gets_slower_or_faster_is_followed() -> None:
    start = known(2.0, 5.0)
    for _ in range(8):
        start.ended("prefix", 1.0)
        start.began("suffix", 0.0)
        start.ended("suffix", 9.0)
    start.began("suffix", 10.0)
    assert start.wait_s(10.0) == pytest.approx(8.0)
