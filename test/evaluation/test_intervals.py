"""Intervals against published ones, and against the coverage that they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla_simd_ros.evaluation.intervals import paired_difference, wilson

# Successes of 20 trials and bounds in percent, as printed in vla.simd's Table VI and vla.cpp's Table VII.
VLA_SIMD = [
    (4, 8, 42),
    (12, 39, 78),
    (18, 70, 97),
    (16, 58, 92),
    (17, 64, 95),
    (19, 76, 99),
    (10, 30, 70),
    (13, 43, 82),
]
VLA_CPP = [(15, 20, 53.1, 88.8), (12, 20, 38.7, 78.1), (14, 20, 48.1, 85.5), (10, 10, 72.2, 100.0)]


@pytest.mark.parametrize(("successes", "low", "high"), VLA_SIMD)
def test_the_printed_intervals_of_vla_simd(successes: int, low: int, high: int) -> None:
    found = wilson(successes, 20)
    assert (round(found.low * 100), round(found.high * 100)) == (low, high)


@pytest.mark.parametrize(("successes", "trials", "low", "high"), [*VLA_CPP, (9, 10, 59.6, 98.2)])
def test_the_printed_intervals_of_vla_cpp(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert (round(found.low * 100, 1), round(found.high * 100, 1)) == (low, high)


def test_bounds_solve_the_score_equation() -> None:
    # A bound p is where the observed share lies 1.96 standard errors of p away.
    for successes in (1, 37, 199):
        found = wilson(successes, 200)
        for bound in (found.low, found.high):
            error = math.sqrt(bound * (1.0 - bound) / 200)
            assert abs(found.share - bound) / error == pytest.approx(1.959964, abs=1e-6)


def test_the_ends_stay_inside() -> None:
    assert wilson(0, 200).low == 0.0
    assert wilson(0, 200).high == pytest.approx(0.01885, abs=1e-5)
    assert wilson(200, 200).high == 1.0
    assert str(wilson(3, 4)) == "3/4, 75.0% (30% to 95%)"


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_impossible_counts(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes of {trials} trials"):
        wilson(successes, trials)


def flags(both: int, gained: int, lost: int, neither: int) -> tuple[list[bool], list[bool]]:
    these = [True] * (both + gained) + [False] * (lost + neither)
    others = [True] * both + [False] * gained + [True] * lost + [False] * neither
    return these, others


def test_the_same_results_differ_by_nothing() -> None:
    found = paired_difference(*flags(150, 0, 0, 50))
    assert (found.difference, found.gained, found.lost) == (0.0, 0, 0)
    # Perfectly correlated but for the continuity correction: hardly wider than nothing.
    assert -0.02 < found.low < 0.0 < found.high < 0.02


def test_a_difference_and_its_mirror_image() -> None:
    found = paired_difference(*flags(40, 20, 5, 35))
    mirrored = paired_difference(*flags(40, 5, 20, 35))
    assert found.difference == pytest.approx(0.15)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
    assert 0.0 < found.low < 0.15 < found.high


def test_intervals_of_differences_hold_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    chances = np.array([0.62, 0.18, 0.08, 0.12])
    draws = rng.multinomial(60, chances, size=3000)
    held = sum(
        found.low <= 0.10 <= found.high for found in (paired_difference(*flags(*draw)) for draw in draws)
    )
    assert held / 3000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(("these", "others"), [([], []), ([True], [True, False])])
def test_trials_that_are_not_pairs(these: list[bool], others: list[bool]) -> None:
    with pytest.raises(ValueError, match="expected as many, at least one"):
        paired_difference(these, others)
